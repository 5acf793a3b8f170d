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
// slept too long. The ticks of s are in local time unless s says otherwise.
//
// Run returns the cause of ctx's end, nil if s has no more ticks, or an ErrInvalid
// at once. How ticks ended is told by Config.OnTick and Config.Logger alone.
func (j Job) Run(ctx context.Context, s Schedule, fn func(ctx context.Context) error) error {
	due, err := j.Due(s)
	if err != nil {
		return err
	}
	var runs sync.WaitGroup
	defer runs.Wait()
	for {
		if ticks := due.Take(time.Now()); len(ticks) > 0 {
			j.turn = j.turn.next()
			job := j
			runs.Go(func() { job.each(ctx, ticks, fn) }) // ends when the runs are over
		}
		now := time.Now()
		next := due.Next(now)
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

// each calls Tick for ticks that came due together, one after the other.
func (j Job) each(ctx context.Context, ticks []time.Time, fn func(ctx context.Context) error) {
	for _, tick := range ticks {
		if ctx.Err() != nil {
			return
		}
		_ = j.Tick(ctx, tick, fn) // reported
	}
}

// turn ends the wait of a tick once a later one waits. A nil turn ends none.
type turn struct{ over chan struct{} }

// next ends t and returns the turn of the ticks that come now.
func (t *turn) next() *turn {
	if t != nil {
		close(t.over)
	}
	return &turn{make(chan struct{})}
}

// end calls cancel when the turn is over, until the function it returns is called.
func (t *turn) end(cancel func()) (stop func()) {
	if t == nil {
		return func() {}
	}
	done := make(chan struct{})
	go func() { // ends when stop is called, or the turn is over
		select {
		case <-t.over:
			cancel()
		case <-done:
		}
	}()
	return func() { close(done) }
}
