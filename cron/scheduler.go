package cron

import (
	"context"
	"sync"
	"time"
)

// Run is a scheduler for one job. It calls Tick for every tick of s, in its own goroutines,
// until ctx ends or s has no more ticks. It then waits for the current runs. With Config.CatchUp it
// runs missed ticks at the start, and after the host was suspended. The ticks of s are in local
// time unless s says otherwise; hosts in different zones then have different ticks and run all of
// them.
//
// Run returns the cause of ctx's end, nil if s has no more ticks, or an ErrInvalid at once.
// Outcomes of ticks are reported only to Config.OnTick and Config.Logger.
func (j *Job) Run(ctx context.Context, s Schedule, fn func(ctx context.Context) error) error {
	due, err := j.Due(s)
	if err != nil {
		return err
	}
	var runs sync.WaitGroup
	defer runs.Wait()
	for {
		if ticks := due.Take(time.Now()); len(ticks) > 0 {
			runs.Go(func() { _ = due.TickAll(ctx, ticks, fn) }) // reported; ends when the runs have ended
		}
		now := time.Now()
		next := due.nextTick(now)
		if next.IsZero() {
			return nil
		}
		wait := time.NewTimer(min(next.Sub(now.Round(0)), ClockCheck))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return context.Cause(ctx)
		}
	}
}
