package cron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

// Take says how [Job.Begin] acquires the lock of the job.
type Take struct {
	// Acquire acquires the lock with the given name, which is that of the job.
	Acquire func(ctx context.Context, name string) (*fencelock.Lock, error)

	Shared bool          // others may hold the lock at the same time
	AtOnce bool          // Acquire does not wait, and Begin does not retry while the engine is unavailable
	Wait   time.Duration // how long Begin retries; 0 means until the tick is too late
}

// ErrUnrecorded means that the work of an [Attempt] ran, but the record may not say so: another
// instance may run the tick again.
var ErrUnrecorded = errors.New("the run could not be recorded, and another host may run this tick again")

// Attempt is an attempt to run a tick. It belongs to one goroutine.
type Attempt struct{ run *ongoing }

// Begin begins an attempt to run a tick, for a caller whose work starts later, such as a command.
// It acquires the lock with take and records the attempt under it. Until [Attempt.Started], the tick
// is not claimed: if the caller fails or dies, the next caller runs it.
//
// Begin returns a *[SkippedError] if the tick is claimed, too late, or the job is paused; the error
// of take.Acquire; fencelock.ErrUnavailable if the attempt could not be recorded; and
// fencelock.ErrLost if the lock was lost. In these cases it has released the lock.
func (j *Job) Begin(ctx context.Context, tick time.Time, take Take) (*Attempt, error) {
	r, err := j.attempt(ctx, tick.Round(0), take)
	if err != nil {
		return nil, err
	}
	return &Attempt{r}, nil
}

// Lock returns the lock that Begin has acquired. The caller releases it after Finish.
func (a *Attempt) Lock() *fencelock.Lock { return a.run.lock }

// Started tells that the work has started. It does not block: the claim is recorded meanwhile.
func (a *Attempt) Started() { a.run.start() }

// Finish ends the attempt. err is the error of the work, or why it was not started. Without
// Started, the tick stays open. Otherwise Finish records the outcome and returns err, joined with
// [ErrUnrecorded] and the *LostError if they apply. If the engine is unreachable, it returns after
// at most 11 s. Further calls do nothing and return err.
func (a *Attempt) Finish(err error) error { return a.run.finish(err) }

// attempt begins a run under a lock of the caller, who starts the work later.
func (j *Job) attempt(ctx context.Context, scheduled time.Time, take Take) (*ongoing, error) {
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
	if err := j.retryUnavailable(ctx, c.until, func() error { return c.open(ctx) }); err != nil {
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
func (c *claim) take(ctx context.Context, take Take) (*fencelock.Lock, error) {
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
