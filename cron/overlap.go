package cron

import (
	"context"
	"time"
)

// Overlap says what happens to a tick that comes due during an earlier run. Missed ticks that
// Config.CatchUp runs wait for each other in any case.
type Overlap int

// The overlap policies.
const (
	OverlapSkip  Overlap = iota // the tick is skipped on all instances
	OverlapLast                 // the tick waits, at most for Config.Late; with Job.Run and the adapters only the newest tick of an instance waits
	OverlapAllow                // both run at the same time, with a shared lock
)

// overTurn is the context of ticks that newer ones have replaced. It has ended.
var overTurn = func() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}()

// turn returns the context in which a tick may wait. It ends when a newer tick comes due. If the
// scheduler is the caller's, it never ends and only Config.Late bounds the wait.
func (j *Job) turn(tick time.Time) context.Context {
	if j.turnOf == nil {
		return context.Background()
	}
	return j.turnOf(tick)
}
