package recordlock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/recordlock"
)

// Locks in records, here those of memory. A program uses the records of a store, such as those of
// package sqlrecords.
func Example() {
	records := memlock.New(nil).Records()
	engine := recordlock.New(records, nil)
	defer engine.Close()
	locks := fencelock.New(engine, nil)

	err := locks.Do(context.Background(), "invoice:42", func(context.Context) error {
		fmt.Println("charged")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: charged
}
