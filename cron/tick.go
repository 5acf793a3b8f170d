package cron

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/retry"
)

// Tick runs fn for the tick with the given scheduled time if this instance is the one that claims
// it, and returns the error of fn. If another instance has claimed it, or the tick must not run,
// Tick returns a *SkippedError. If the engine does not answer until the tick is too late
// (Config.Late), Tick returns the engine's error; the tick may then not be run at all.
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

// startUnder is begin for a claimed tick, under a lock of the caller.
func (j *Job) startUnder(ctx context.Context, scheduled time.Time, lock *fencelock.Lock) (*ongoing, error) {
	return j.begin(ctx, scheduled.Round(0), func(j *Job, ctx context.Context, scheduled time.Time) (*ongoing, error) {
		if lock.Name() != j.name {
			return nil, fmt.Errorf("%w: a run of %q needs a lock with that name, not one on %q", fencelock.ErrInvalid, j.name, lock.Name())
		}
		tick := scheduled.UTC()
		r := &ongoing{job: j, tick: tick, scheduled: tick, lock: lock, borrowed: true}
		return r.begin(ctx)
	})
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

func (j *Job) start(ctx context.Context, scheduled time.Time) (*ongoing, error) {
	if err := j.claim(ctx, scheduled); err != nil {
		return nil, err
	}
	tick := scheduled.UTC()
	lock, err := j.enter(ctx, tick)
	if err != nil {
		return nil, err
	}
	if time.Since(tick) > j.cfg.Late { // the engine took long to answer, or this process was paused
		_ = lock.Release()
		return nil, j.skipped(tick, ReasonTooLate, nil)
	}
	return newRun(ctx, j, tick, tick, lock)
}

// startNow is start without a claim.
func (j *Job) startNow(ctx context.Context, now time.Time) (*ongoing, error) {
	err := j.insist(ctx, now, func() error { return j.unpaused(ctx, now) })
	if err != nil {
		return nil, err
	}
	lock, err := j.enter(ctx, now)
	if err != nil {
		return nil, err
	}
	return newRun(ctx, j, now, time.Time{}, lock)
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

// claim claims the tick for this instance. scheduled is in the zone of its schedule.
func (j *Job) claim(ctx context.Context, scheduled time.Time) error {
	tick := scheduled.UTC()
	switch late := time.Since(tick); {
	case late > j.cfg.Late:
		return j.skipped(tick, ReasonTooLate, nil)
	case late < -j.cfg.Skew-early:
		return fmt.Errorf("%w: the tick of %q at %s is %v in the future, more than Skew allows", fencelock.ErrInvalid, j.name, stamp(tick), -late)
	}
	var next time.Time
	if j.after != nil {
		next = j.after(scheduled).UTC()
	}
	c := &claim{job: j, tick: tick, next: next, id: rand.Text()[:idLength]}
	if err := j.insist(ctx, tick, func() error { return c.try(ctx) }); err != nil {
		return err
	}
	if time.Since(tick) > j.cfg.Late {
		// The claim took long, or this process was paused. If the claim is a lock, that of another
		// instance may have come and gone in the meantime.
		return j.skipped(tick, ReasonTooLate, nil)
	}
	return nil
}

const (
	firstPause = 100 * time.Millisecond // the first pause after the engine was unavailable
	lastPause  = 5 * time.Second
)

// insist calls ask and retries while the engine is unavailable, until the tick would be too late.
func (j *Job) insist(ctx context.Context, tick time.Time, ask func() error) error {
	for pause := retry.NewBackoff(firstPause, lastPause); ; {
		err := ask()
		wait := pause.Next()
		if !errors.Is(err, fencelock.ErrUnavailable) || errors.Is(err, fencelock.ErrConfig) ||
			ctx.Err() != nil || time.Since(tick)+wait > j.cfg.Late {
			return err
		}
		j.cfg.Logger.Info("engine unavailable, retrying", "job", j.name, "tick", tick, "again_in", wait, "error", err)
		retry.Sleep(ctx, wait)
	}
}

// enter acquires the lock that runs of the job hold.
func (j *Job) enter(ctx context.Context, tick time.Time) (lock *fencelock.Lock, err error) {
	err = j.insist(ctx, tick, func() error {
		lock, err = j.tryEnter(ctx, tick)
		return err
	})
	return lock, err
}

// tryEnter is one attempt, which may wait.
func (j *Job) tryEnter(ctx context.Context, tick time.Time) (*fencelock.Lock, error) {
	o := j.locks.Options()
	o.Shared, o.Limit, o.Weight = j.cfg.Overlap == OverlapAllow, 0, 0
	o.Note, o.Kind = stamp(tick), fencelock.KindCron
	locks := j.locks.WithOnly(o)
	acquire, waiting := locks.TryAcquire, ctx
	turn := j.turn(tick)
	if j.cfg.Overlap == OverlapLast && turn.Err() == nil {
		var cancel context.CancelFunc
		waiting, cancel = context.WithDeadline(ctx, tick.Add(j.cfg.Late))
		defer cancel()
		defer context.AfterFunc(turn, cancel)()
		acquire = locks.Acquire
	}
	lock, err := acquire(waiting, j.name)
	switch {
	case err == nil:
		return lock, nil
	case ctx.Err() != nil:
	case errors.Is(err, fencelock.ErrHeld):
		return nil, j.skipped(tick, ReasonOverlapped, err)
	case waiting.Err() != nil && turn.Err() != nil:
		return j.tryEnter(ctx, tick) // without waiting: the lock may be free, and the engine merely slower than the ticks
	case waiting.Err() != nil && !errors.Is(err, fencelock.ErrUnavailable):
		return nil, j.skipped(tick, ReasonOverlapped, err)
	}
	return nil, fmt.Errorf("run %q at %s: %w", j.name, stamp(tick), err)
}
