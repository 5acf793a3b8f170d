package idempotent_test

import (
	"context"
	"fmt"

	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/memlock"
)

// A payment that a client sends twice is made once.
func ExampleDo() {
	ctx := context.Background()
	payments := idempotent.New(memlock.New(nil).Register(), nil)

	type receipt struct{ Number, Cents int }
	made := 0
	for range 2 {
		got, err := idempotent.Do(ctx, payments, "payment:42", func(context.Context) (receipt, error) {
			made++
			return receipt{Number: 1, Cents: 995}, nil
		})
		fmt.Println(got, err)
	}
	fmt.Println("made:", made)
	// Output:
	// {1 995} <nil>
	// {1 995} <nil>
	// made: 1
}
