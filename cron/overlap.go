package cron

import (
	"context"
	"time"
)

// Overlap says what happens to a tick that comes due during an earlier run. Several ticks that
// are made up for (Config.CatchUp) wait for one another in any case.
type Overlap int

// The ways to deal with an overlap.
const (
	OverlapSkip  Overlap = iota // the tick is not run, by anybody
	OverlapLast                 // the tick waits, no longer than Config.Late; by Job.Run and the adapters only the newest one of an instance does
	OverlapAllow                // both run; their locks are shared
)

// overTurn is the turn of ticks before those that came due last.
var overTurn = func() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}()

// turn returns the turn in which the tick may wait, which is over once a later one waits; if the
// schedule is the caller's, nothing but Config.Late ends it.
func (j *Job) turn(tick time.Time) context.Context {
	if j.turnOf == nil {
		return context.Background()
	}
	return j.turnOf(tick)
}
