package gocronelector_test

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron/schedulers/gocronelector"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/memlock"
	"github.com/go-co-op/gocron/v2"
)

// Every instance has the same jobs; those of the leader run.
func Example() {
	locks := fencelock.New(memlock.New(nil), nil)
	elector := gocronelector.New(election.New(locks, "billing", nil))
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	_, err = scheduler.NewJob(gocron.DurationJob(10*time.Millisecond), gocron.NewTask(stop))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(elector.Run(ctx, scheduler))
	// Output: context canceled
}
