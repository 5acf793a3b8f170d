package memlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// Two clients of one store simulate two processes. Lose simulates an engine that loses its data.
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
	// here: lock was lost: the engine lost the data of "invoice:42"
	// there: true <nil>
}

// A record changes only from the version that its writer has read. If two clients have read the same
// version, only one of them can change it.
func ExampleEngine_Records() {
	ctx := context.Background()
	store := memlock.New(nil)
	here, there := store.Records(), store.Client().Records()

	first, err := here.Swap(ctx, "stock", []byte("7 left"), "", 0)
	fmt.Println("here:", err)
	_, err = there.Swap(ctx, "stock", []byte("6 left"), first, time.Hour)
	fmt.Println("there:", err)
	_, err = here.Swap(ctx, "stock", []byte("5 left"), first, time.Hour)
	fmt.Println("here:", errors.Is(err, driver.ErrConflict))

	stock, err := here.Get(ctx, "stock")
	fmt.Printf("%s %v\n", stock.Value, err)

	// Output:
	// here: <nil>
	// there: <nil>
	// here: true
	// 6 left <nil>
}
