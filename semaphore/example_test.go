package semaphore_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/semaphore"
)

// A job that needs two of the five places of an accelerator, among all processes.
func ExampleSemaphore_Do() {
	locks := fencelock.New(memlock.New(nil), nil)
	gpu := semaphore.New(locks, "gpu", 5)

	err := gpu.Do(context.Background(), 2, func(ctx context.Context) error {
		st, err := gpu.Status(ctx)
		fmt.Println("free:", st.Free(), "of", st.Size)
		return err
	})
	fmt.Println(err)
	// Output:
	// free: 3 of 5
	// <nil>
}

// Work that is turned away when all places are taken.
func ExampleSemaphore_TryAcquire() {
	ctx := context.Background()
	partner := semaphore.New(fencelock.New(memlock.New(nil), nil), "partner", 2)

	for range 3 {
		permit, err := partner.TryAcquire(ctx, 1)
		if errors.Is(err, fencelock.ErrHeld) {
			fmt.Println("busy, try again later")
			continue
		}
		defer permit.Release()
		fmt.Println("one of them, and it stands:", permit.Err() == nil)
	}
	// Output:
	// one of them, and it stands: true
	// one of them, and it stands: true
	// busy, try again later
}

// The size changes for everybody, while they work.
func ExampleSemaphore_Resize() {
	ctx := context.Background()
	locks := fencelock.New(memlock.New(nil), nil)
	old, deployed := semaphore.New(locks, "gpu", 5), semaphore.New(locks, "gpu", 8)

	first, _ := old.Acquire(ctx, 5)
	_, err := deployed.TryAcquire(ctx, 3)
	fmt.Println(errors.Is(err, fencelock.ErrInvalid))

	err = deployed.Resize(ctx, 8) // a deployment with a new size begins with this
	second, _ := deployed.TryAcquire(ctx, 3)
	fmt.Println(err, second.Token() > first.Token())
	// Output:
	// true
	// <nil> true
}
