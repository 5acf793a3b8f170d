package cron_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/memlock"
)

// Two instances whose schedulers fire for the same tick: one runs it.
func ExampleJob_Tick() {
	store := memlock.New(nil)
	tick := time.Now().Truncate(time.Second)

	for _, engine := range []*memlock.Engine{store, store.Client()} {
		job := cron.New(fencelock.New(engine, nil), "invoices", nil)
		err := job.Tick(context.Background(), tick, func(ctx context.Context) error {
			token, _ := fencelock.TokenFrom(ctx)
			fmt.Println("billing under a token:", token > 0)
			return nil
		})
		fmt.Println("skipped:", errors.Is(err, cron.ErrSkipped))
	}
	// Output:
	// billing under a token: true
	// skipped: false
	// skipped: true
}

// A scheduler for one job, that makes up for the last tick if nobody ran it.
func ExampleJob_Run() {
	locks := fencelock.New(memlock.New(nil), nil)
	job := cron.New(locks, "invoices", &cron.Config{Late: 6 * time.Hour, CatchUp: 1})
	ctx, stop := context.WithCancel(context.Background())
	err := job.Run(ctx, cron.Every(time.Hour), func(context.Context) error {
		fmt.Println("the last full hour was missed, and is made up for")
		stop()
		return nil
	})
	fmt.Println(err)
	// Output:
	// the last full hour was missed, and is made up for
	// context canceled
}
