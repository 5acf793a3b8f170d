package cron

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
)

// claim is the attempt of this instance to become the one that runs a tick. On an engine with
// records, the job's record says which instance claimed the tick; on other engines a lock does. It
// is used by one goroutine.
type claim struct {
	job  *Job
	tick time.Time
	next time.Time // the following tick, or the zero time if unknown
	id   string    // distinguishes this claim from all others
}

// idLength is the length of an id. It is short because a record contains many. 40 bits are enough
// for the few claims of one tick.
const idLength = 8

// try returns nil if this claim gets the tick. It can be called again after ErrUnavailable.
func (c *claim) try(ctx context.Context) error {
	b, err := c.job.book()
	if errors.Is(err, fencelock.ErrUnsupported) {
		return c.lock(ctx)
	}
	return c.take(ctx, b)
}

// take writes the claim into the record. If an earlier call wrote it but got no answer, take finds
// its id.
func (c *claim) take(ctx context.Context, b book) error {
	if r, _, err := b.read(ctx); err != nil {
		return c.failed(err)
	} else if r != nil && c.refused(r) != nil {
		return c.refused(r) // most instances end here, after one read
	}
	return c.failed(b.change(ctx, func(r *record, now time.Time) error {
		if by, _ := r.taker(c.tick); by == c.id {
			return nil // write it again: the first write was not acknowledged
		}
		if err := c.refused(r); err != nil {
			return err
		}
		if ahead := c.tick.Sub(now); ahead > c.job.cfg.Skew+early {
			c.job.cfg.Logger.Warn("the clocks of this host and of the engine differ by more than Skew", "job", c.job.name, "tick", c.tick, "engine", now)
		}
		r.take(c.tick, c.id, c.next, now)
		return nil
	}))
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

// failed adds the job and the tick to an error.
func (c *claim) failed(err error) error {
	if err == nil || errors.Is(err, ErrSkipped) {
		return err
	}
	return fmt.Errorf("claim %q at %s: %w", c.job.name, stamp(c.tick), err)
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
	if err := lock.Release(); err != nil {
		c.job.cfg.Logger.Debug("release of a claim failed", "job", c.job.name, "tick", c.tick, "error", err)
	}
	return nil
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
