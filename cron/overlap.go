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
	// OverlapSkip skips the tick on every instance that calls during the earlier run.
	OverlapSkip Overlap = iota
	// OverlapLast lets the tick wait, at most for Config.Late. With Job.Run and the adapters only
	// the newest tick of an instance waits.
	OverlapLast
	// OverlapAllow runs both at the same time, with a shared lock.
	OverlapAllow
)

// overTurn is the context of ticks that newer ones have replaced. It has ended.
var overTurn = func() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}()

// waitContext returns the context in which a tick may wait. It ends when a newer tick comes due. If
// the scheduler is the caller's, it never ends and only Config.Late bounds the wait.
func (j *Job) waitContext(tick time.Time) context.Context {
	if j.waitContextOf == nil {
		return context.Background()
	}
	return j.waitContextOf(tick)
}
