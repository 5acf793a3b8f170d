package cron

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/retry"
)

// Tick runs fn for the tick with the given scheduled time if this instance is the one that claims
// it, and returns the error of fn. If another instance has claimed it, or the tick must not run,
// Tick returns a *SkippedError. If the engine does not answer until the tick is too late
// (Config.Late), Tick returns the engine's error; the tick may then not be run at all. Whatever other
// error keeps fn from being called leaves the tick to the next caller.
//
// If another instance is about to start the tick, Tick waits until that has succeeded or failed, at
// most for Config.Late.
//
// The context of fn is derived from ctx and has the fencing token of the run. If the lock of the
// run is lost, it ends with a cause that is fencelock.ErrLost, and Tick returns the loss joined
// with the error of fn.
//
// scheduled must be the same on all instances: pass the time for which the run was scheduled, not
// the time at which the scheduler woke up.
func (j *Job) Tick(ctx context.Context, scheduled time.Time, fn func(ctx context.Context) error) error {
	run, err := j.begin(ctx, scheduled.Round(0), (*Job).start) // wall time, in any zone
	if err != nil {
		return err
	}
	return run.do(fn)
}

// Now runs fn at once, independently of the schedule. It does not run at the same time as another
// run of the job on any host, unless Config.Overlap allows it, and not while the job is paused. It
// returns the same errors as [Job.Tick], with the time of the call in place of the tick. No tick is
// claimed.
func (j *Job) Now(ctx context.Context, fn func(ctx context.Context) error) error {
	run, err := j.begin(ctx, time.Now().Round(0).UTC(), (*Job).startNow)
	if err != nil {
		return err
	}
	return run.do(fn)
}

// begin begins a run with start, and reports the error if it fails.
func (j *Job) begin(ctx context.Context, tick time.Time, start func(*Job, context.Context, time.Time) (*ongoing, error)) (*ongoing, error) {
	if j.invalid != nil {
		return nil, j.invalid
	}
	run, err := start(j, ctx, tick)
	if err != nil {
		j.report(ctx, Run{Tick: tick.UTC()}, err)
	}
	return run, err
}

// start claims the tick under the lock of the job, as the last step before the work.
func (j *Job) start(ctx context.Context, scheduled time.Time) (*ongoing, error) {
	c, err := j.newClaim(scheduled)
	if err != nil {
		return nil, err
	}
	lock, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.late(); err != nil {
		_ = lock.Release()
		return nil, err
	}
	r := &ongoing{job: j, tick: c.tick, scheduled: c.tick, claim: c, lock: lock}
	return r.begin(ctx, StateRunning)
}

// startNow is start without a claim.
func (j *Job) startNow(ctx context.Context, now time.Time) (*ongoing, error) {
	until := now.Add(j.cfg.Late)
	err := j.retryUnavailable(ctx, until, func() error { return j.unpaused(ctx, now) })
	if err != nil {
		return nil, err
	}
	lock, err := j.enter(ctx, &claim{job: j, tick: now, until: until})
	if err != nil {
		return nil, err
	}
	r := &ongoing{job: j, tick: now, lock: lock}
	return r.begin(ctx, StateRunning)
}

// unpaused returns a *SkippedError if the job is paused.
func (j *Job) unpaused(ctx context.Context, now time.Time) error {
	b, err := j.book()
	if errors.Is(err, fencelock.ErrUnsupported) {
		return nil
	}
	r, _, err := b.read(ctx)
	if err == nil && r != nil && r.Paused != nil {
		return &SkippedError{Job: j.name, Tick: now, Reason: ReasonPaused, Pause: r.Paused}
	}
	if err != nil {
		return fmt.Errorf("run %q at %s: %w", j.name, stamp(now), err)
	}
	return nil
}

const (
	firstPause = 100 * time.Millisecond // the first pause after the engine was unavailable
	lastPause  = 5 * time.Second
)

// retryUnavailable calls ask and retries while the engine is unavailable, until the given time.
func (j *Job) retryUnavailable(ctx context.Context, until time.Time, ask func() error) error {
	for pause := retry.NewBackoff(firstPause, lastPause); ; {
		err := ask()
		wait := pause.Next()
		if !errors.Is(err, fencelock.ErrUnavailable) || errors.Is(err, fencelock.ErrConfig) ||
			ctx.Err() != nil || time.Until(until) < wait {
			return err
		}
		j.cfg.Logger.Info("engine unavailable, retrying", "job", j.name, "again_in", wait, "error", err)
		retry.Sleep(ctx, wait)
	}
}

// enter acquires the lock that runs of the job hold.
func (j *Job) enter(ctx context.Context, c *claim) (lock *fencelock.Lock, err error) {
	err = j.retryUnavailable(ctx, c.until, func() error {
		lock, err = j.tryEnter(ctx, c)
		return err
	})
	return lock, err
}

// tryEnter is one attempt, which may wait.
func (j *Job) tryEnter(ctx context.Context, c *claim) (*fencelock.Lock, error) {
	tick := c.tick
	o := j.locks.Options()
	o.Shared, o.Limit, o.Weight = j.cfg.Overlap == OverlapAllow, 0, 0
	o.Note, o.Kind = stamp(tick), fencelock.KindCron
	locks := j.locks.WithOnly(o)
	acquire, waiting := locks.TryAcquire, ctx
	newest := j.waitContext(tick)
	if j.cfg.Overlap == OverlapLast && newest.Err() == nil {
		var cancel context.CancelFunc
		waiting, cancel = context.WithDeadline(ctx, tick.Add(j.cfg.Late))
		defer cancel()
		defer context.AfterFunc(newest, cancel)()
		acquire = func(ctx context.Context, name string) (*fencelock.Lock, error) {
			return c.whileOpen(ctx, func(ctx context.Context) (*fencelock.Lock, error) { return locks.Acquire(ctx, name) })
		}
	}
	lock, err := acquire(waiting, j.name)
	switch {
	case err == nil:
		return lock, nil
	case ctx.Err() != nil:
	case isClaimed(err):
		return nil, err
	case errors.Is(err, fencelock.ErrHeld):
		return nil, j.skipped(tick, ReasonOverlapped, err)
	case waiting.Err() != nil && newest.Err() != nil:
		return j.tryEnter(ctx, c) // without waiting: the lock may be free, and the engine merely slower than the ticks
	case waiting.Err() != nil && !errors.Is(err, fencelock.ErrUnavailable):
		return nil, j.skipped(tick, ReasonOverlapped, err)
	}
	return nil, fmt.Errorf("run %q at %s: %w", j.name, stamp(tick), err)
}
