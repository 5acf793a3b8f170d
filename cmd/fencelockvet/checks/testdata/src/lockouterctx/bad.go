// Package lockouterctx has functions that run under a lock, with the right context and with another.
package lockouterctx

import (
	"context"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/semaphore"
)

func work(ctx context.Context) error { return ctx.Err() }

type request struct{}

func (*request) Context() context.Context { return context.Background() }

func bad01(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(held context.Context) error {
		return work(ctx) // want `ctx does not end when the lock is lost: use held, the context given to the function of Locker.Do`
	})
}

func bad02(ctx context.Context, locks *fencelock.Locker) error {
	return locks.TryDo(ctx, "a", func(_ context.Context) error {
		return work(ctx) // want `name the context given to the function of Locker.TryDo and use it`
	})
}

func bad03(ctx context.Context, locks *fencelock.Locker) error {
	return locks.DoAll(ctx, []string{"a", "b"}, func(c context.Context) error {
		if err := work(c); err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, time.Second) // want `use c, the context`
		defer cancel()
		return work(limited)
	})
}

// The context for the wait was derived from ctx.
func bad04(ctx context.Context, locks *fencelock.Locker) error {
	waiting, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return locks.Do(waiting, "a", func(c context.Context) error {
		return work(ctx) // want `ctx does not end when the lock is lost: use c`
	})
}

func bad05(r *request, locks *fencelock.Locker) error {
	return locks.Do(r.Context(), "a", func(ctx context.Context) error {
		return work(r.Context()) // want `r.Context\(\) does not end when the lock is lost: use ctx`
	})
}

func bad06(ctx context.Context, s *semaphore.Semaphore) error {
	return s.Do(ctx, 1, func(c context.Context) error {
		return work(ctx) // want `semaphore.Semaphore.Do`
	})
}

func bad07(ctx context.Context, locks *fencelock.Locker, c *election.Candidate) error {
	_ = election.Run(ctx, locks, "a", func(term context.Context) error {
		return work(ctx) // want `use term, the context given to the function of election.Run`
	})
	return c.Run(ctx, func(term context.Context) error {
		return work(ctx) // want `use term, the context given to the function of election.Candidate.Run`
	})
}

func bad08(ctx context.Context, job *cron.Job, at time.Time) error {
	_ = job.Now(ctx, func(run context.Context) error {
		return work(ctx) // want `cron.Job.Now`
	})
	return job.Tick(ctx, at, func(run context.Context) error {
		return work(ctx) // want `cron.Job.Tick`
	})
}

func bad09(ctx context.Context, s *idempotent.Store) (string, error) {
	return idempotent.Do(ctx, s, "a", func(run context.Context) (string, error) {
		return "", work(ctx) // want `use run, the context given to the function of idempotent.Do`
	})
}

// Both contexts from outside are wrong in the inner function.
func bad10(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(outer context.Context) error {
		return locks.Do(outer, "b", func(inner context.Context) error {
			if err := work(outer); err != nil { // want `outer does not end when the lock is lost: use inner`
				return err
			}
			return work(ctx) // want `ctx does not end when the lock is lost: use inner`
		})
	})
}

func bad11(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(fencelock.WithNote(ctx, "note"), "a", func(c context.Context) error {
		return locks.Do(ctx, "b", func(ctx context.Context) error { // want `ctx does not end when the lock is lost: use c`
			return work(ctx)
		})
	})
}

// A name for the parameter would also change the deferred call, so there is no fix.
func bad12(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(_ context.Context) error {
		defer work(ctx)
		return work(ctx) // want `name the context given to the function of Locker.Do and use it`
	})
}

func bad13(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(held context.Context) error {
		if err := work(ctx); err != nil { // want `ctx does not end when the lock is lost: use held`
			return err
		} else if err == nil {
			return work(ctx) // want `ctx does not end when the lock is lost: use held`
		}
		select {
		case <-time.After(time.Second):
			return work(ctx) // want `ctx does not end when the lock is lost: use held`
		case <-held.Done():
			return held.Err()
		}
	})
}
