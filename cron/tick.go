package cron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/retry"
)

// Tick runs fn for the tick that was scheduled at the given time, if this
// instance is the one to do so, and returns fn's error. Otherwise it returns a
// *SkippedError, or an error of package fencelock if the engine could not tell until
// the tick was too late (Config.Late); the tick may then be run by nobody.
//
// The context of fn is ctx with the fencing token of the run; it ends with a
// cause that is fencelock.ErrLost if the lock of the run is lost, and ErrAtMost
// after Config.AtMost. A loss is joined to the error that Tick returns.
//
// The time must be the same on all instances, whatever their clocks say: not
// when the scheduler woke up, but what it woke up for. [Due] finds it.
func (j Job) Tick(ctx context.Context, scheduled time.Time, fn func(ctx context.Context) error) error {
	run, err := j.Start(ctx, scheduled)
	if err != nil {
		return err
	}
	err = errExited
	defer func() { _ = run.Finish(err) }() // for a panic in fn; otherwise the second, and harmless
	err = fn(run.Context())
	return run.Finish(err)
}

// errExited stands for fn's error if it panics.
var errExited = errors.New("the run ended its goroutine")

// Start is the first half of Tick, for schedulers that call the work themselves:
// it claims the tick and begins a run, which the caller must Finish.
func (j Job) Start(ctx context.Context, scheduled time.Time) (*Run, error) {
	scheduled = scheduled.Round(0).UTC() // wall time, in any zone
	full, err := j.withDefaults()
	if err != nil {
		return nil, err
	}
	run, err := full.start(ctx, scheduled)
	if err != nil {
		full.report(Outcome{Job: j.name, Scheduled: scheduled, Err: err})
	}
	return run, err
}

func (j Job) start(ctx context.Context, tick time.Time) (*Run, error) {
	switch late := time.Since(tick); {
	case late > j.Late:
		return nil, j.skipped(tick, TooLate, nil)
	case late < -j.Skew-early:
		return nil, fmt.Errorf("%w: %q is scheduled at %s, which is in %v", fencelock.ErrInvalid, j.name, stamp(tick), -late)
	}
	if err := j.insist(ctx, tick, func() error { return j.claim(ctx, tick) }); err != nil {
		return nil, err
	}
	if time.Since(tick) > j.Late {
		// The claim took long, or this process stood still: the claim of another
		// instance may have come and gone meanwhile.
		return nil, j.skipped(tick, TooLate, nil)
	}
	var lock *fencelock.Lock
	err := j.insist(ctx, tick, func() (err error) {
		lock, err = j.enter(ctx, tick)
		return err
	})
	if err != nil {
		return nil, err
	}
	return j.begin(ctx, tick, lock), nil
}

const (
	firstPause = 100 * time.Millisecond // after an engine could not be asked
	lastPause  = 5 * time.Second
)

// insist calls ask until the engine can be asked, or the tick would be too late.
func (j Job) insist(ctx context.Context, tick time.Time, ask func() error) error {
	for pause := retry.NewBackoff(firstPause, lastPause); ; {
		err := ask()
		wait := pause.Next()
		if !errors.Is(err, fencelock.ErrUnavailable) || errors.Is(err, fencelock.ErrConfig) ||
			ctx.Err() != nil || time.Since(tick)+wait > j.Late {
			return err
		}
		j.Logger.Info("engine is away", "job", j.name, "tick", tick, "again_in", wait, "error", err)
		retry.Sleep(ctx, wait)
	}
}

// Claim makes this instance the one that runs the tick, and is nil if it is. It is
// for programs that hold a lock of their own while they run it; see [Job.Start].
func (j Job) Claim(ctx context.Context, scheduled time.Time) error {
	full, err := j.withDefaults()
	if err != nil {
		return err
	}
	scheduled = scheduled.Round(0).UTC()
	return full.insist(ctx, scheduled, func() error { return full.claim(ctx, scheduled) })
}

// claim makes this instance the one that runs the tick. The lock of the claim is
// given back at once: its minimum hold is what keeps the others out.
func (j Job) claim(ctx context.Context, tick time.Time) error {
	o := j.locks.Options()
	o.MinHold, o.Note = j.keep(), stamp(tick)
	claim, err := j.locks.With(o).TryAcquire(ctx, j.claimName(tick))
	if errors.Is(err, fencelock.ErrHeld) {
		return j.skipped(tick, Claimed, err)
	}
	if err != nil {
		return fmt.Errorf("claim %q at %s: %w", j.name, stamp(tick), err)
	}
	if err := claim.Release(); err != nil {
		j.Logger.Debug("release of a claim failed", "job", j.name, "tick", tick, "error", err)
	}
	return nil
}

// enter takes the lock that runs of the job hold.
func (j Job) enter(ctx context.Context, tick time.Time) (*fencelock.Lock, error) {
	o := j.locks.Options()
	o.Shared, o.MinHold, o.Note = j.Overlap == OverlapAllow, cmp.Or(j.MinHold, o.MinHold), stamp(tick)
	locks := j.locks.With(o)
	acquire, waiting := locks.TryAcquire, ctx
	if j.Overlap == OverlapLast {
		var cancel context.CancelFunc
		waiting, cancel = context.WithDeadline(ctx, tick.Add(j.Late))
		defer cancel()
		defer j.turn.end(cancel)()
		acquire = locks.Acquire
	}
	lock, err := acquire(waiting, j.name)
	switch {
	case err == nil:
		return lock, nil
	case errors.Is(err, fencelock.ErrHeld) && ctx.Err() == nil, waiting.Err() != nil && ctx.Err() == nil:
		return nil, j.skipped(tick, Overlapped, err)
	}
	return nil, fmt.Errorf("run %q at %s: %w", j.name, stamp(tick), err)
}

// skipped makes the error of a tick that somebody else's lock keeps from running.
func (j Job) skipped(tick time.Time, why Reason, err error) error {
	held, _ := errors.AsType[*fencelock.HeldError](err)
	return &SkippedError{Job: j.name, Scheduled: tick, Reason: why, Held: held}
}
