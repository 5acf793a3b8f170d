// Package cronhook contains what the adapters of other schedulers and the command need of a job of
// package cron, and programs do not. Package cron imports it and sets its variables, so a job is an
// any here: a *cron.Job.
package cronhook

import (
	"context"
	"time"

	"github.com/fencelock/fencelock"
)

var (
	// NewDue returns a Due of the job that begins now, or with Config.CatchUp as far back
	// as Config.Late. schedule is a cron.Schedule.
	NewDue func(job any, schedule Schedule) (Due, error)

	// Claim makes this instance the one that runs the tick, and is nil if it is. Otherwise
	// it returns what Tick would.
	Claim func(ctx context.Context, job any, tick time.Time) error

	// StartUnder begins the run of a tick that Claim has claimed, under a lock that the
	// caller holds on the name of the job and releases after finish. A run that is not
	// finished while its lock is held is shown as Lost afterwards.
	//
	// It returns a *cron.SkippedError if the job was paused since the claim, a *LostError if
	// the lock is lost, and ErrInvalid if the lock has another name. An engine that has no
	// records or does not answer within a second keeps no run from beginning.
	StartUnder func(ctx context.Context, job any, tick time.Time, lock *fencelock.Lock) (finish Finish, err error)
)

// Finish ends a run with the error of its work, nil for none: it writes the outcome into the
// job's record, releases the lock unless the run came from StartUnder, and reports the
// outcome. It returns err, joined with the *LostError of a lock that was lost. If the engine is
// unreachable it returns after 10 s at the latest. Another call does nothing and returns err.
type Finish func(err error) error

// Schedule is a cron.Schedule.
type Schedule interface {
	Next(t time.Time) time.Time
}

// Due finds for which ticks of its schedule a scheduler woke up, and runs them. It is safe for
// concurrent use.
type Due interface {
	// Take returns the ticks that came due by now since the last call, oldest first, in the
	// zone of now. Of several it returns the newest one, or the newest so many as
	// Config.CatchUp allows. Ticks that came due longer than Config.Late ago are past: the
	// first of them is reported to Config.OnTick.
	Take(now time.Time) []time.Time

	// Near reports whether a tick of the schedule is due now or came due within Config.Late,
	// taken or not. A scheduler that wakes up when none is near has another schedule.
	Near(now time.Time) bool

	// TickAll is Job.Tick for ticks that Take has returned together, one after the other
	// until ctx ends. If there are several, each of them waits for the run before it, here or
	// on another instance, no longer than Config.Late, also with OverlapSkip. It returns the errors
	// of all, but for those of ticks that were skipped, and the cause of ctx's end if some
	// were not tried.
	TickAll(ctx context.Context, ticks []time.Time, fn func(ctx context.Context) error) error

	// Start is the first half of Job.Tick for a tick that Take has returned.
	Start(ctx context.Context, tick time.Time) (finish Finish, err error)

	// Report tells Config.OnTick and Config.Logger why the scheduler's call at now has run no
	// tick.
	Report(now time.Time, why error)

	// CatchUp is Config.CatchUp, and RunsOverlap whether Config.Overlap is OverlapAllow.
	CatchUp() int
	RunsOverlap() bool
}
