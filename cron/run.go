package cron

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
)

// Run is the run of one tick on this instance, from Start to Finish.
type Run struct {
	job    Job
	tick   time.Time
	lock   *fencelock.Lock
	began  time.Time
	ctx    context.Context
	cancel context.CancelCauseFunc
	stops  []func() bool // stop what would cancel
	once   sync.Once     // for Finish
}

// begin begins a run, whose context ends with ctx, the lock, or Config.AtMost.
func (j Job) begin(ctx context.Context, tick time.Time, lock *fencelock.Lock) *Run {
	r := &Run{job: j, tick: tick, lock: lock, began: time.Now()}
	r.ctx, r.cancel = context.WithCancelCause(context.WithValue(lock.Context(), tickKey{}, tick))
	r.stops = append(r.stops, context.AfterFunc(ctx, func() { r.cancel(context.Cause(ctx)) }))
	if j.AtMost > 0 {
		r.stops = append(r.stops, time.AfterFunc(j.AtMost, func() { r.cancel(ErrAtMost) }).Stop)
	}
	return r
}

// tickKey is the context key of the tick that a run is for.
type tickKey struct{}

// TickFrom returns the time of the tick that ctx was made for, in UTC, and false if it
// was made for none.
func TickFrom(ctx context.Context) (time.Time, bool) {
	tick, ok := ctx.Value(tickKey{}).(time.Time)
	return tick, ok
}

// Scheduled returns the time of the tick, in UTC.
func (r *Run) Scheduled() time.Time { return r.tick }

// Token returns the fencing token: greater than that of every earlier run of the
// job on any instance.
func (r *Run) Token() int64 { return r.lock.Token() }

// Context returns a context that ends with the run; see [Job.Tick].
func (r *Run) Context() context.Context { return r.ctx }

// Finish ends the run with the error of its work, nil for none, gives the lock
// back, and reports the outcome. It returns err, joined with the *LostError of a
// lock that was lost. Another call does nothing and returns err.
func (r *Run) Finish(err error) error {
	r.once.Do(func() { err = r.finish(err) })
	return err
}

func (r *Run) finish(err error) error {
	took := time.Since(r.began)
	for _, stop := range r.stops {
		stop()
	}
	lost := r.lock.Err()
	r.cancel(context.Canceled) // whatever the work left behind ends before the next run begins
	released := r.lock.Release()
	if lost == nil && errors.Is(released, fencelock.ErrNotHeld) {
		lost = &fencelock.LostError{Name: r.job.name, Token: r.Token(), Deadline: r.lock.Deadline(), Reason: released}
	}
	switch {
	case lost != nil:
		err = errors.Join(lost, err)
	case released != nil:
		r.job.Logger.Debug("release failed", "job", r.job.name, "tick", r.tick, "error", released)
	}
	r.job.report(Outcome{Job: r.job.name, Scheduled: r.tick, Started: r.began, Took: took, Token: r.Token(), Err: err})
	return err
}
