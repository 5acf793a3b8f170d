package cron

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
)

// claim is the attempt of this instance to be the one that runs a tick. Where the engine
// keeps records, the job's record says who has the tick; elsewhere a lock does. One goroutine
// uses it.
type claim struct {
	job  *Job
	tick time.Time
	next time.Time // the tick after it, if that is known
	id   string    // tells this claim from all others
}

// idLength is the length of an id: short, since records hold many. 40 bits are enough for
// those who want one tick.
const idLength = 8

// try is nil if the tick is this claim's. After an ErrUnavailable it can be called again.
func (c *claim) try(ctx context.Context) error {
	b, err := c.job.book()
	if errors.Is(err, fencelock.ErrUnsupported) {
		return c.lock(ctx)
	}
	return c.take(ctx, b)
}

// take writes into the record that the tick is this claim's. If it failed after it was
// carried out, the next call finds the id.
func (c *claim) take(ctx context.Context, b book) error {
	if r, _, err := b.read(ctx); err != nil {
		return c.failed(err)
	} else if r != nil && c.refused(r) != nil {
		return c.refused(r) // as most instances are, at the cost of one look
	}
	return c.failed(b.change(ctx, func(r *record, now time.Time) error {
		if by, _ := r.taker(c.tick); by == c.id {
			return nil // written once more, and as safe as the engine makes it: the first try had no answer
		}
		if err := c.refused(r); err != nil {
			return err
		}
		if ahead := c.tick.Sub(now); ahead > c.job.cfg.Skew+early {
			c.job.cfg.Logger.Warn("the clocks of this host and of the engine are far apart", "job", c.job.name, "tick", c.tick, "engine", now)
		}
		r.take(c.tick, c.id, c.next, now)
		return nil
	}))
}

// refused is a *SkippedError if the record refuses the tick to this claim.
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

// failed says what failed.
func (c *claim) failed(err error) error {
	if err == nil || errors.Is(err, ErrSkipped) {
		return err
	}
	return fmt.Errorf("claim %q at %s: %w", c.job.name, stamp(c.tick), err)
}

// lock takes the lock that stands for the tick, and gives it back at once: its minimum
// hold is what keeps the others out.
func (c *claim) lock(ctx context.Context) error {
	o := c.job.locks.Options()
	o.Shared, o.Limit, o.Weight = false, 0, 0
	o.MinHold, o.Note = c.job.keep(), stamp(c.tick)
	lock, err := c.job.locks.WithOnly(o).TryAcquire(ctx, c.job.claimName(c.tick))
	if errors.Is(err, fencelock.ErrHeld) {
		return c.job.skipped(c.tick, ReasonClaimed, err)
	}
	if errors.Is(err, fencelock.ErrInvalid) {
		err = fmt.Errorf("an engine without records keeps a claim for Skew and Late, %v: %w", c.job.keep(), err)
	}
	if err != nil {
		return c.failed(err)
	}
	if err := lock.Release(); err != nil {
		c.job.cfg.Logger.Debug("release of a claim failed", "job", c.job.name, "tick", c.tick, "error", err)
	}
	return nil
}

// keep is how long the lock of a claim is kept: from when the first instance asks for a
// tick until the last one does, whose clock may be Skew behind and who may be Late.
func (j *Job) keep() time.Duration { return early + j.cfg.Skew + j.cfg.Late }

// shortRing is after which time the names of claims come again, where longRing need not be.
const shortRing = time.Hour

// claimName is the name of the lock that stands for one tick. A name comes again
// only when no instance asks for its last tick any more and its claim is over,
// which is within twice the time that claims are kept.
func (j *Job) claimName(tick time.Time) string {
	ring := shortRing
	if 2*j.keep() > ring {
		ring = longRing
	}
	return j.name + "@" + tick.Sub(tick.Truncate(ring)).String()
}
