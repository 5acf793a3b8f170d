package cron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/cronhook"
)

func init() {
	cronhook.Begin = func(ctx context.Context, job any, tick time.Time, take cronhook.Take) (cronhook.Attempt, error) {
		r, err := job.(*Job).attempt(ctx, tick.Round(0), take)
		if err != nil {
			return nil, err
		}
		return attempt{r}, nil
	}
}

// attempt implements cronhook.Attempt.
type attempt struct{ run *ongoing }

// Lock implements cronhook.Attempt.
func (a attempt) Lock() *fencelock.Lock { return a.run.lock }

// Started implements cronhook.Attempt.
func (a attempt) Started() { a.run.start() }

// Finish implements cronhook.Attempt.
func (a attempt) Finish(err error) error { return a.run.finish(err) }

// attempt begins a run under a lock of the caller, who starts the work later.
func (j *Job) attempt(ctx context.Context, scheduled time.Time, take cronhook.Take) (*ongoing, error) {
	if j.invalid != nil {
		return nil, j.invalid
	}
	c, err := j.newClaim(scheduled)
	if err != nil {
		return nil, err
	}
	c.shared = take.Shared
	if take.AtOnce {
		c.until, c.rivals = time.Time{}, time.Time{}
	} else {
		c.rivals = time.Now().Add(cmp.Or(take.Wait, driver.MaxDuration))
		if c.rivals.Before(c.until) {
			c.until = c.rivals
		}
	}
	if err := j.insist(ctx, c.until, func() error { return c.open(ctx) }); err != nil {
		return nil, err
	}
	lock, err := c.take(ctx, take)
	if err != nil {
		return nil, err
	}
	r := &ongoing{job: j, tick: c.tick, scheduled: c.tick, claim: c, lock: lock}
	if r, err = r.begin(ctx, StateStarting); err != nil {
		return nil, err
	}
	r.borrowed = true
	return r, nil
}

// take acquires a lock of the caller. If the caller waits, an earlier run may end long after the
// tick is too late for others. Only a record tells for that long that nobody has run the tick.
func (c *claim) take(ctx context.Context, take cronhook.Take) (*fencelock.Lock, error) {
	lock, err := c.whileOpen(ctx, func(ctx context.Context) (*fencelock.Lock, error) { return take.Acquire(ctx, c.job.name) })
	if err != nil {
		return nil, err
	}
	late := c.late()
	if _, without := c.job.book(); late != nil && without != nil && !take.AtOnce {
		late = c.job.skipped(c.tick, ReasonOverlapped, nil)
	} else if !take.AtOnce {
		late = nil
	}
	if late == nil && lock.Name() != c.job.name {
		late = fmt.Errorf("%w: a run of %q needs a lock with that name, not one on %q", fencelock.ErrInvalid, c.job.name, lock.Name())
	}
	if late != nil {
		return nil, errors.Join(late, lock.Release())
	}
	return lock, nil
}
