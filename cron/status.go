package cron

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/recordtext"
)

// Status is what the engine's record of a job says. Times are by the engine's clock, but
// for those of ticks.
type Status struct {
	Job    string
	Tick   time.Time // the newest tick that was taken, by any instance; zero if none was
	Next   time.Time // the tick after it; zero if only the caller of Job.Tick knows it
	Last   *Run      // nil if the job has never run
	Paused *Pause    // nil if it is not paused
}

// Status returns what is known of the job, on any host. A job without a record, which has
// never had a tick, has a Status that says nothing. fencelock.ErrUnsupported if the engine
// keeps no records.
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

// List returns the Status of every job whose name begins with prefix, by name. If some
// records are not those of jobs, it returns the others together with a
// fencelock.ErrConfig that names each such record. It is for people: the engine may look
// through all that it stores.
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

// status makes a Status of a record. A run that the record calls running is lost if the
// record still does so after the lock of the job was found without it: outcomes are
// written before locks are given back.
func (b book) status(ctx context.Context, locks *fencelock.Locker, r *record) (Status, error) {
	if r.Last != nil && r.Last.State == StateRunning {
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
			if r.Last != nil && r.Last.Token == token && r.Last.State == StateRunning {
				r.Last.State = StateLost
			}
		}
	}
	s := Status{Job: b.job, Next: r.Next, Last: r.Last, Paused: r.Paused}
	if n := len(r.Ticks); n > 0 {
		s.Tick = r.Ticks[n-1].tick
	}
	return s, nil
}

// holds reports whether the acquisition with that token holds name; true if the engine
// cannot list its locks, or cannot see all of them.
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

// Pause keeps the ticks of the job from being run, on all hosts, until Resume, and Now
// too: they are skipped with ReasonPaused. A run under way goes on; a tick that waits for its end is
// skipped. Pausing once more replaces the reason. fencelock.ErrUnsupported if the engine keeps no
// records.
func (j *Job) Pause(ctx context.Context, reason string) error {
	return j.edit(ctx, "pause", func(r *record, now time.Time) error {
		r.Paused = &Pause{Reason: reason, Host: recordtext.Host(), Since: now}
		return nil
	})
}

// Resume lets the job go on. What came due before, by the engine's clock and that of this host, is
// not run any more. It does so also for a job that is not paused but stands still, since an
// engine's clock was once far ahead: ticks count from now on, also those that were run when all
// clocks showed this time before.
func (j *Job) Resume(ctx context.Context) error {
	return j.edit(ctx, "resume", func(r *record, now time.Time) error {
		if r.fresh {
			return errUnchanged
		}
		// The floor keeps forgotten ticks from being run again. It is lowered only where it keeps
		// every tick of today from being run.
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
