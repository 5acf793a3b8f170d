package fencelock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

func Example() {
	locks := fencelock.New(memlock.New(nil), nil)

	err := locks.Do(context.Background(), "invoice:42", func(ctx context.Context) error {
		token, _ := fencelock.TokenFrom(ctx)
		fmt.Println("charged under a token:", token > 0)
		return nil
	})
	fmt.Println(err)
	// Output:
	// charged under a token: true
	// <nil>
}

func ExampleLocker_TryAcquire() {
	locks := fencelock.New(memlock.New(nil), nil)
	ctx := context.Background()

	first, err := locks.TryAcquire(ctx, "seat 12A")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer first.Release()

	_, err = locks.TryAcquire(ctx, "seat 12A")
	fmt.Println("already taken:", errors.Is(err, fencelock.ErrHeld))
	// Output: already taken: true
}

func ExampleLocker_With() {
	locks := fencelock.New(memlock.New(nil), nil)
	workers := locks.With(fencelock.Options{Shared: true, Limit: 2})
	ctx := context.Background()

	for i := range 3 {
		if _, err := workers.TryAcquire(ctx, "transcode"); err != nil {
			fmt.Println("worker", i+1, "finds no room")
		}
	}
	// Output: worker 3 finds no room
}
