// Package locktokenunused has writes under a lock, with its fencing token and without.
package locktokenunused

import (
	"context"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/election"
)

type store struct{}

func (store) Exec(query string, args ...any) error                             { return nil }
func (store) ExecContext(ctx context.Context, query string, args ...any) error { return nil }
func (store) Put(ctx context.Context, key string, value []byte) error          { return nil }
func (store) Set(ctx context.Context, key, value string) error                 { return nil }
func (store) Save(ctx context.Context) error                                   { return nil }
func (store) Insert(ctx context.Context, row any) error                        { return nil }
func (store) Delete(ctx context.Context, key string) error                     { return nil }
func (store) Get(ctx context.Context, key string) (string, error)              { return "", nil }

func bad01(ctx context.Context, locks *fencelock.Locker, db store) error {
	return locks.Do(ctx, "a", func(ctx context.Context) error {
		return db.ExecContext(ctx, "UPDATE t SET a = 1") // want `this write in the function given to Locker.Do does not use the fencing token`
	})
}

func bad02(ctx context.Context, locks *fencelock.Locker, db store) error {
	return locks.TryDo(ctx, "a", func(ctx context.Context) error {
		return db.Exec("UPDATE t SET a = 1") // want `Locker.TryDo`
	})
}

func bad03(ctx context.Context, locks *fencelock.Locker, s store) error {
	return locks.DoAll(ctx, []string{"a"}, func(ctx context.Context) error {
		return s.Put(ctx, "a", nil) // want `Locker.DoAll`
	})
}

func bad04(ctx context.Context, locks *fencelock.Locker, s store) error {
	return locks.Do(ctx, "a", func(ctx context.Context) error {
		if _, err := s.Get(ctx, "a"); err != nil {
			return err
		}
		return s.Set(ctx, "a", "b") // want `Locker.Do`
	})
}

func bad05(ctx context.Context, locks *fencelock.Locker, s store) error {
	return election.Run(ctx, locks, "a", func(ctx context.Context) error {
		return s.Save(ctx) // want `election.Run`
	})
}

func bad06(ctx context.Context, c *election.Candidate, s store) error {
	return c.Run(ctx, func(ctx context.Context) error {
		return s.Insert(ctx, 1) // want `election.Candidate.Run`
	})
}

func bad07(ctx context.Context, job *cron.Job, s store) error {
	return job.Now(ctx, func(ctx context.Context) error {
		return s.Delete(ctx, "a") // want `cron.Job.Now`
	})
}

func inTx(ctx context.Context, fn func(tx store) error) error { return fn(store{}) }

func bad08(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(ctx context.Context) error {
		return inTx(ctx, func(tx store) error {
			return tx.ExecContext(ctx, "DELETE FROM t") // want `Locker.Do`
		})
	})
}

// A token from outside says nothing about this lock.
func bad09(ctx context.Context, locks *fencelock.Locker, s store) error {
	token, _ := fencelock.TokenFrom(ctx)
	_ = token
	return locks.Do(ctx, "a", func(ctx context.Context) error {
		return s.Set(ctx, "a", "b") // want `Locker.Do`
	})
}

func bad10(ctx context.Context, locks *fencelock.Locker, s store) error {
	return locks.Do(ctx, "a", func(ctx context.Context) error {
		for range 3 {
			if err := s.Put(ctx, "a", nil); err != nil { // want `Locker.Do`
				return err
			}
		}
		return s.Save(ctx)
	})
}
