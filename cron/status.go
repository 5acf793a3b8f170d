package cron

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/hostname"
)

// Status is the content of a job's record. Times are by the engine's clock, except for those of
// ticks.
type Status struct {
	Job    string
	Tick   time.Time // the newest tick that an instance claimed or was about to start; zero if there is none
	Next   time.Time // the following tick; zero if only the caller of Job.Tick knows it
	Last   *Run      // the last run; nil if the job has never run
	Paused *Pause    // nil if the job is not paused
}

// Status returns the status of the job over all instances. If the job has no record because it
// never had a tick, only Status.Job is set. Status returns fencelock.ErrUnsupported if the engine
// has no records.
func (j *Job) Status(ctx context.Context) (Status, error) {
	b, err := j.book()
	if err != nil {
		return Status{}, err
	}
	r, _, err := b.read(ctx)
	if err != nil || r == nil {
		return Status{Job: j.name}, err
	}
	return b.status(ctx, j.locks, r)
}

// List returns the Status of every job whose name begins with prefix, ordered by name. If some
// records are not those of jobs, it returns the others together with a fencelock.ErrConfig that
// names them. The engine may read everything that it stores: use List rarely, such as to show jobs
// to people.
func List(ctx context.Context, locks *fencelock.Locker, prefix string) ([]Status, error) {
	kept, err := locks.Records()
	if err != nil {
		return nil, err
	}
	records, err := kept.List(ctx, recordPrefix+prefix)
	if err != nil {
		return nil, err
	}
	var list []Status
	var unreadable error
	for _, rec := range records {
		r, err := decode(rec)
		if err != nil {
			unreadable = errors.Join(unreadable, err)
			continue
		}
		s, err := (book{records: kept, job: r.Job}).status(ctx, locks, r)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, unreadable
}

// gone returns the state of a run whose lock is gone.
func gone(s State) State {
	switch s {
	case StateRunning:
		return StateLost
	case StateStarting:
		return StateUnstarted
	}
	return s
}

// status returns the Status for a record. A run whose record says running, but whose lock is gone,
// is lost if a second read still says running: outcomes are written before the lock is released.
// The same holds for a run that is starting.
func (b book) status(ctx context.Context, locks *fencelock.Locker, r *record) (Status, error) {
	if r.Last != nil && gone(r.Last.State) != r.Last.State {
		held, err := holds(ctx, locks, b.job, r.Last.Token)
		if err != nil {
			return Status{}, err
		}
		if !held {
			token := r.Last.Token
			again, _, err := b.read(ctx)
			if err != nil {
				return Status{}, err
			}
			if again != nil {
				r = again
			}
			if r.Last != nil && r.Last.Token == token {
				r.Last.State = gone(r.Last.State)
			}
		}
	}
	s := Status{Job: b.job, Next: r.Next, Last: r.Last, Paused: r.Paused}
	if n := len(r.Ticks); n > 0 {
		s.Tick = r.Ticks[n-1].tick
	}
	return s, nil
}

// holds reports whether the acquisition with that token holds name. It returns true if the engine
// cannot list its locks, or not all of them.
func holds(ctx context.Context, locks *fencelock.Locker, name string, token int64) (bool, error) {
	s, err := locks.Status(ctx, name)
	if errors.Is(err, fencelock.ErrUnsupported) {
		return true, nil
	}
	for _, h := range s.Holders {
		if h.Token == token {
			return true, nil
		}
	}
	return err == nil && s.Trouble != nil, err
}

// Pause stops the job on all hosts until Resume: its ticks and calls of Now are skipped with
// ReasonPaused. A current run continues; a tick that waits for its end is skipped. Another Pause
// replaces the reason. Pause returns fencelock.ErrUnsupported if the engine has no records.
func (j *Job) Pause(ctx context.Context, reason string) error {
	return j.edit(ctx, "pause", func(r *record, now time.Time) error {
		r.Paused = &Pause{Reason: reason, Host: hostname.Get(), Since: now}
		return nil
	})
}

// Resume ends a pause. Ticks that came due before, by the engine's clock or that of this host, are
// not run any more.
//
// Resume also restarts a job that is not paused but does not run because a clock was once far
// ahead: ticks from now on can be claimed again. That includes ticks which were run while that
// clock was wrong.
func (j *Job) Resume(ctx context.Context) error {
	return j.edit(ctx, "resume", func(r *record, now time.Time) error {
		if r.fresh {
			return errUnchanged
		}
		// The floor keeps ticks that are no longer listed from being run again. It is lowered only
		// if it is in the future, where it prevents every tick.
		earlier, later := order(now)
		if earlier.After(r.Floor) || r.Paused == nil && r.Floor.After(later) {
			r.Floor = earlier
		}
		r.Paused = nil
		return nil
	})
}

// edit changes the record of the job.
func (j *Job) edit(ctx context.Context, what string, f func(r *record, now time.Time) error) error {
	b, err := j.book()
	if err == nil {
		err = b.change(ctx, f)
	}
	if err != nil {
		return fmt.Errorf("%s %q: %w", what, j.name, err)
	}
	return nil
}
