package fencelock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// A transfer needs both accounts at once. Whoever transfers the other way at the
// same time takes the same locks in the same order, and nobody waits for ever.
func ExampleLocker_DoAll() {
	locks := fencelock.New(memlock.New(nil), nil)
	accounts := []string{"account:7", "account:3"}

	err := locks.DoAll(context.Background(), accounts, func(ctx context.Context) error {
		for _, account := range accounts {
			held, _ := fencelock.HeldFor(ctx, account)
			fmt.Println(account, "under a token of its own:", held.Token > 0)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// account:7 under a token of its own: true
	// account:3 under a token of its own: true
	// <nil>
}

// A set is held as a whole or not at all.
func ExampleLocker_AcquireAll() {
	locks := fencelock.New(memlock.New(nil), nil)
	ctx := context.Background()

	set, err := locks.AcquireAll(ctx, "seat:2", "seat:1")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, lock := range set.Locks() {
		fmt.Println(lock.Name(), lock.Err())
	}

	_, err = locks.TryAcquireAll(ctx, "seat:2", "seat:3")
	held, _ := errors.AsType[*fencelock.HeldError](err)
	fmt.Println("in the way:", held.Name)
	alone, err := locks.TryAcquire(ctx, "seat:3")
	fmt.Println("left alone:", err)

	fmt.Println(errors.Join(set.Release(), alone.Release()))
	// Output:
	// seat:1 <nil>
	// seat:2 <nil>
	// in the way: seat:2
	// left alone: <nil>
	// <nil>
}

// Contexts of nested locks know each of them.
func ExampleHeldFor() {
	locks := fencelock.New(memlock.New(nil), nil)

	err := locks.Do(context.Background(), "order", func(ctx context.Context) error {
		return locks.Do(ctx, "stock", func(ctx context.Context) error {
			order, _ := fencelock.HeldFor(ctx, "order")
			stock, _ := fencelock.HeldFor(ctx, "stock")
			inner, _ := fencelock.HeldFrom(ctx)
			_, other := fencelock.HeldFor(ctx, "else")
			fmt.Println(order.Token > 0, stock == inner, other)
			return nil
		})
	})
	fmt.Println(err)
	// Output:
	// true true false
	// <nil>
}

// More room for everybody, while it is in use.
func ExampleLocker_Resize() {
	locks := fencelock.New(memlock.New(nil), nil)
	workers := locks.With(fencelock.Options{Shared: true, Limit: 1})
	ctx := context.Background()

	first, err := workers.TryAcquire(ctx, "transcode")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer first.Release()
	_, err = workers.TryAcquire(ctx, "transcode")
	fmt.Println("no room:", errors.Is(err, fencelock.ErrHeld))

	if err := locks.Resize(ctx, "transcode", 2); err != nil {
		fmt.Println(err)
		return
	}
	second, err := workers.TryAcquire(ctx, "transcode")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer second.Release()
	status, err := locks.Status(ctx, "transcode")
	fmt.Println(len(status.Holders), "of", status.Limit, err)
	// Output:
	// no room: true
	// 2 of 2 <nil>
}

// One holder may take more of a limit than another.
func ExampleOptions_weight() {
	locks := fencelock.New(memlock.New(nil), nil)
	small := locks.With(fencelock.Options{Shared: true, Limit: 4})
	big := locks.With(fencelock.Options{Shared: true, Limit: 4, Weight: 3})
	ctx := context.Background()

	for i, l := range []*fencelock.Locker{big, big, small} {
		lock, err := l.TryAcquire(ctx, "memory")
		fmt.Println("job", i+1, "gets in:", err == nil)
		if err == nil {
			defer lock.Release()
		}
	}
	// Output:
	// job 1 gets in: true
	// job 2 gets in: false
	// job 3 gets in: true
}
