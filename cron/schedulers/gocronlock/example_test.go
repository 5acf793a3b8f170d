package gocronlock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/cron/schedulers/gocronlock"
	"github.com/fencelock/fencelock/memlock"
	"github.com/go-co-op/gocron/v2"
)

// Every instance schedules the same job; each tick is run by one of them.
func ExampleTask() {
	const period = 2 * time.Second
	job := cron.New(fencelock.New(memlock.New(nil), nil), "invoices", nil)
	ran := make(chan bool, 100)
	task, err := gocronlock.Task(job, cron.Every(period), func(ctx context.Context) error {
		_, locked := fencelock.TokenFrom(ctx)
		ran <- locked
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	scheduler, err := gocron.NewScheduler(gocronlock.WallClock())
	if err != nil {
		fmt.Println(err)
		return
	}
	start := gocron.WithStartDateTime(time.Now().Truncate(period).Add(2 * period))
	_, err = scheduler.NewJob(gocron.DurationJob(period), gocron.NewTask(task), gocron.WithStartAt(start))
	scheduler.Start()
	fmt.Println("ran under a token:", <-ran, err)
	_ = scheduler.Shutdown()
	// Output: ran under a token: true <nil>
}
