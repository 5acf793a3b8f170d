package drivertest_test

import (
	"fmt"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
)

// The cases are selected by the engine's traits: an engine whose locks end with their process is
// not tested for leases.
func ExampleCases() {
	files := driver.Traits{Engine: "files", Order: driver.OrderAll, Limits: true}
	for _, c := range drivertest.Cases() {
		switch c.Name {
		case "expiry", "crash-frees", "fifo", "limit", "limit-unsupported":
			fmt.Println(c.Name, c.Needs(files))
		}
	}
	// Output:
	// expiry false
	// crash-frees true
	// fifo true
	// limit true
	// limit-unsupported false
}
