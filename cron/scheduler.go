package cron

import (
	"context"
	"sync"
	"time"
)

// look is how often Run looks at the clock while it waits for a tick: the clock
// may be set, and a suspended host wakes up late.
const look = time.Minute

// Run is a scheduler for one job: it calls Tick for every tick of s, in goroutines
// of its own, until ctx ends or s has no more ticks, and waits for the runs under
// way. It makes up for missed ticks at the start and whenever it finds that it
// slept too long. The ticks of s are in local time unless s says otherwise: hosts in different zones
// have different ticks then, and run all of them.
//
// Run returns the cause of ctx's end, nil if s has no more ticks, or an ErrInvalid
// at once. How ticks ended is told by Config.OnTick and Config.Logger alone.
func (j *Job) Run(ctx context.Context, s Schedule, fn func(ctx context.Context) error) error {
	due, err := j.newDue(s)
	if err != nil {
		return err
	}
	var runs sync.WaitGroup
	defer runs.Wait()
	for {
		if ticks := due.Take(time.Now()); len(ticks) > 0 {
			runs.Go(func() { _ = due.TickAll(ctx, ticks, fn) }) // reported; ends when the runs are over
		}
		now := time.Now()
		next := due.nextTick(now)
		if next.IsZero() {
			return nil
		}
		wait := time.NewTimer(min(next.Sub(now.Round(0)), look))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return context.Cause(ctx)
		}
	}
}
