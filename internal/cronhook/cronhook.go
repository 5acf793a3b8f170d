// Package cronhook connects package cron with the adapters for other schedulers and with the
// command. Programs do not need it. Package cron imports this package and sets the variables, so a
// job is an any here: a *cron.Job.
package cronhook

import (
	"context"
	"time"
)

// ClockCheck is how often a scheduler reads the wall clock while it waits for a tick. Its timer runs
// on the monotonic clock, which stops while the host is suspended and does not follow a clock that
// is set. It is half of the default of Config.Late, so that a tick shortly after that is not too late.
const ClockCheck = 30 * time.Second

// NewDue returns a Due of the job that starts now, or, with Config.CatchUp, Config.Late ago.
// schedule is a cron.Schedule.
var NewDue func(job any, schedule Schedule) (Due, error)

// Finish ends a run. err is the error of its work, or nil. It writes the outcome into the job's
// record, releases the lock, and reports the outcome. It returns err, joined with the *LostError if
// the lock was lost. If the engine is unreachable, it returns after at most 10 s. Further calls do
// nothing and return err.
type Finish func(err error) error

// Schedule is a cron.Schedule.
type Schedule interface {
	Next(t time.Time) time.Time
}

// Due finds the ticks for which a scheduler woke up, and runs them. It is safe for concurrent use.
type Due interface {
	// Take returns the ticks that came due since the last call, up to now, oldest first, in the
	// zone of now. It returns only the newest one, or the newest Config.CatchUp ones if that is
	// more. Ticks older than Config.Late are dropped; the first of them is reported to
	// Config.OnTick.
	Take(now time.Time) []time.Time

	// Near reports whether a tick of the schedule is due now or came due within Config.Late,
	// whether taken or not. If none is near, the scheduler uses another schedule.
	Near(now time.Time) bool

	// TickAll calls Job.Tick for ticks that Take has returned together, one after the other, until
	// ctx ends. If there are several, each waits for the run before it, here or on another
	// instance, at most for Config.Late, even with OverlapSkip. It returns the errors of all ticks
	// except of skipped ones, and the cause of ctx's end if it did not reach all of them.
	TickAll(ctx context.Context, ticks []time.Time, fn func(ctx context.Context) error) error

	// Start is the first half of Job.Tick, for a tick that Take has returned.
	Start(ctx context.Context, tick time.Time) (finish Finish, err error)

	// Report tells Config.OnTick and Config.Logger why the scheduler's call at now ran no tick.
	Report(now time.Time, why error)

	// CatchUp returns Config.CatchUp. RunsOverlap reports whether Config.Overlap is OverlapAllow.
	CatchUp() int
	RunsOverlap() bool
}
