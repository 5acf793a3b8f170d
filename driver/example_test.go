package driver_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// An engine checks a request before any I/O.
func ExampleRequest_Check() {
	traits := driver.Traits{Engine: "pigeons", Leased: true, MaxTTL: time.Minute}

	fmt.Println(driver.Request{Name: "loft", TTL: time.Second}.Check(traits))
	fmt.Println(driver.Request{Name: "loft", TTL: time.Hour}.Check(traits))
	// Output:
	// <nil>
	// invalid request: the TTL 1h0m0s is longer than the maximum 1m0s
}

// The error says who holds the lock.
func ExampleHeldError() {
	err := fmt.Errorf("nightly: %w", &driver.HeldError{
		Name:     "backup",
		Identity: driver.Identity{Host: "db1", PID: 4711, Note: "run 7"},
	})
	if held, ok := errors.AsType[*driver.HeldError](err); ok {
		fmt.Println(errors.Is(err, driver.ErrHeld), held)
	}
	// Output: true "backup" is held by pid 4711 on db1 (run 7)
}
