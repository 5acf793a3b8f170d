package memlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// Two clients of one store stand for two processes; Lose rehearses an engine
// that lost its data.
func Example() {
	ctx := context.Background()
	here := memlock.New(nil)
	there := here.Client()

	req := driver.Request{Name: "invoice:42", TTL: time.Minute}
	req.OnLost = func(cause error) { fmt.Println("here:", cause) }
	grant, err := here.Acquire(ctx, req)
	fmt.Println("here:", grant.Token > 0, err)

	_, err = there.Acquire(ctx, req)
	fmt.Println("there:", errors.Is(err, driver.ErrHeld))

	here.Lose("invoice:42")
	again, err := there.Acquire(ctx, req)
	fmt.Println("there:", again.Token > grant.Token, err)

	// Output:
	// here: true <nil>
	// there: true
	// here: lock was lost: the engine forgot "invoice:42"
	// there: true <nil>
}
