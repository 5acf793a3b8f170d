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

// claim is the attempt of this instance to become the one that runs a tick. It is made while this
// instance holds the lock of the job, so that an attempt that ends without a lock leaves no trace.
// On an engine with records, the job's record says which instance claimed the tick; on other
// engines a second lock does. It is used by one goroutine at a time.
type claim struct {
	job    *Job
	tick   time.Time
	next   time.Time // the following tick, or the zero time if unknown
	id     string    // distinguishes this claim from all others
	until  time.Time // when to give up while the engine is unavailable; zero means at once
	shared bool      // whether other instances may hold the lock of the job too
	rivals time.Time // until when to wait for an instance that is about to start the tick

	locked bool // the lock of the claim was acquired, on an engine without records
}

// idLength is the length of an id. It is short because a record contains many. 40 bits are enough
// for the few claims of one tick.
const idLength = 8

// newClaim returns a claim that has claimed nothing yet. scheduled is in the zone of its schedule.
// It returns a *SkippedError if the tick is too late, and ErrInvalid if it is too early.
func (j *Job) newClaim(scheduled time.Time) (*claim, error) {
	tick := scheduled.UTC()
	switch late := time.Since(tick); {
	case late > j.cfg.Late:
		return nil, j.skipped(tick, ReasonTooLate, nil)
	case late < -j.cfg.Skew-early:
		return nil, fmt.Errorf("%w: the tick of %q at %s is %v in the future, more than Skew allows", fencelock.ErrInvalid, j.name, stamp(tick), -late)
	}
	until := tick.Add(j.cfg.Late)
	c := &claim{job: j, tick: tick, id: rand.Text()[:idLength], until: until, rivals: until, shared: j.cfg.Overlap == OverlapAllow}
	if j.after != nil {
		c.next = j.after(scheduled).UTC()
	}
	return c, nil
}

// late returns a *SkippedError if the tick has become too late, since the engine took long to
// answer or this process was paused. If the claim is a lock, that of another instance may have come
// and gone in the meantime.
func (c *claim) late() error {
	if time.Since(c.tick) > c.job.cfg.Late {
		return c.job.skipped(c.tick, ReasonTooLate, nil)
	}
	return nil
}

// open returns a *SkippedError if the record says that the tick cannot be claimed. Most instances
// end here, after one read.
func (c *claim) open(ctx context.Context) error {
	b, err := c.job.book()
	if errors.Is(err, fencelock.ErrUnsupported) {
		return nil
	}
	r, _, err := b.read(ctx)
	if err != nil {
		return c.failed(err)
	}
	if r == nil {
		return nil
	}
	return c.refused(r)
}

// refused returns a *SkippedError if the record does not let this claim have the tick.
func (c *claim) refused(r *record) error {
	by, free := r.taker(c.tick)
	switch {
	case by == c.id:
		return nil
	case !free:
		return &SkippedError{Job: c.job.name, Tick: c.tick, Reason: ReasonClaimed}
	case r.Paused != nil:
		return &SkippedError{Job: c.job.name, Tick: c.tick, Reason: ReasonPaused, Pause: r.Paused}
	}
	return nil
}

// rival returns a *SkippedError if another instance is about to start the tick under a shared lock.
// Under an exclusive lock nobody else can be: an attempt in the record has ended.
func (c *claim) rival(ctx context.Context, r *record, token int64) error {
	other := r.attempt(c.tick)
	if !c.shared || other == 0 || other == token {
		return nil
	}
	if last := r.Last; last != nil && last.Token == other && last.State == StateUnstarted {
		return nil // it has failed and is about to release its lock
	}
	if alive, err := holds(ctx, c.job.locks, c.job.name, other); err != nil || !alive {
		return err
	}
	return c.job.skipped(c.tick, ReasonStarting, nil)
}

// pastRival calls ask, which may return the error of rival, until that instance has claimed the tick
// or will not: it may fail.
func (c *claim) pastRival(ctx context.Context, ask func() error) error {
	for pause := retry.NewBackoff(firstStart, lastPause); ; {
		err := ask()
		skipped, ok := errors.AsType[*SkippedError](err)
		if !ok || skipped.Reason != ReasonStarting || !time.Now().Before(c.rivals) {
			return err
		}
		if !retry.Sleep(ctx, min(pause.Next(), time.Until(c.rivals))) {
			return c.failed(context.Cause(ctx))
		}
	}
}

// failed adds the job and the tick to an error.
func (c *claim) failed(err error) error {
	if err == nil || errors.Is(err, ErrSkipped) {
		return err
	}
	return fmt.Errorf("claim %q at %s: %w", c.job.name, stamp(c.tick), err)
}

// enter acquires the lock of the job. It returns a *SkippedError if the tick cannot be claimed or
// an earlier run holds the lock. If another instance is about to start this very tick, enter waits
// until the record says so: that instance may fail.
func (c *claim) enter(ctx context.Context) (*fencelock.Lock, error) {
	j := c.job
	for pause := retry.NewBackoff(firstStart, lastPause); ; {
		if err := j.retryUnavailable(ctx, c.until, func() error { return c.open(ctx) }); err != nil {
			return nil, err
		}
		lock, err := j.enter(ctx, c)
		skipped, ok := errors.AsType[*SkippedError](err)
		if !ok || skipped.Held == nil || skipped.Held.Note != stamp(c.tick) {
			return lock, err
		}
		if _, without := j.book(); without != nil { // only the holder knows whether it starts
			return nil, j.skipped(c.tick, ReasonClaimed, skipped.Held)
		}
		if c.late() != nil || !pause.Wait(ctx) {
			return nil, err
		}
	}
}

// firstStart is the first pause while another instance is about to start the tick.
const firstStart = 5 * time.Millisecond

// whileOpen calls acquire, which may wait for earlier runs. The wait ends when another instance has
// claimed the tick.
func (c *claim) whileOpen(ctx context.Context, acquire func(context.Context) (*fencelock.Lock, error)) (*fencelock.Lock, error) {
	waiting, end := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() { // ends when acquire has returned
		defer close(watched)
		for pause := retry.NewBackoff(firstPause, lastPause); pause.Wait(waiting); {
			if err := c.open(waiting); isClaimed(err) {
				end(err)
			}
		}
	}()
	lock, err := acquire(waiting)
	end(nil)
	<-watched
	if claimed := context.Cause(waiting); lock == nil && isClaimed(claimed) {
		return nil, claimed
	}
	return lock, err
}

func isClaimed(err error) bool {
	skipped, ok := errors.AsType[*SkippedError](err)
	return ok && skipped.Reason == ReasonClaimed
}

// lock claims the tick with a lock and releases it at once: its minimum hold excludes the other
// instances.
func (c *claim) lock(ctx context.Context) error {
	o := c.job.locks.Options()
	o.Shared, o.Limit, o.Weight = false, 0, 0
	o.MinHold, o.Note, o.Kind = c.job.keep(), stamp(c.tick), fencelock.KindCron
	lock, err := c.job.locks.WithOnly(o).TryAcquire(ctx, c.job.claimName(c.tick))
	if errors.Is(err, fencelock.ErrHeld) {
		return c.job.skipped(c.tick, ReasonClaimed, err)
	}
	if errors.Is(err, fencelock.ErrInvalid) {
		err = fmt.Errorf("an engine without records must keep a claim for Skew plus Late, %v: %w", c.job.keep(), err)
	}
	if err != nil {
		return c.failed(err)
	}
	c.locked = true
	if err := lock.Release(); err != nil {
		c.job.cfg.Logger.Debug("release of a claim failed", "job", c.job.name, "tick", c.tick, "error", err)
	}
	return c.late()
}

// unlock ends the minimum hold of a claim whose work did not start. The claim has no owner any more.
// When no instance can claim the tick any longer, the name may already belong to another tick.
func (c *claim) unlock(ctx context.Context) {
	if !c.locked || time.Since(c.tick) > c.job.cfg.Skew+c.job.cfg.Late {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	if _, err := c.job.locks.Break(ctx, c.job.claimName(c.tick), "the run did not start"); err != nil {
		c.job.cfg.Logger.Info("the tick stays claimed, although it was not run", "job", c.job.name, "tick", c.tick, "error", err)
	}
}

// keep is how long the lock of a claim excludes others: from the first possible claim of a tick to
// the last one, by an instance whose clock is Skew behind and that is Late.
func (j *Job) keep() time.Duration { return early + j.cfg.Skew + j.cfg.Late }

// shortRing is the period after which the names of claims repeat, unless claims need longRing.
const shortRing = time.Hour

// claimName returns the name of the lock that claims one tick. Names repeat after a period that is
// at least twice as long as a claim is kept, when no instance asks for the earlier tick any more.
func (j *Job) claimName(tick time.Time) string {
	ring := shortRing
	if 2*j.keep() > ring {
		ring = longRing
	}
	return j.name + "@" + tick.Sub(tick.Truncate(ring)).String()
}
