package locktokenunused

import (
	"context"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/semaphore"
)

func good01(ctx context.Context, locks *fencelock.Locker, db store) error {
	return locks.Do(ctx, "a", func(ctx context.Context) error {
		token, _ := fencelock.TokenFrom(ctx)
		return db.ExecContext(ctx, "UPDATE t SET a = 1 WHERE token <= $1", token)
	})
}

func good02(ctx context.Context, locks *fencelock.Locker, db store) error {
	return locks.Do(ctx, "a", func(ctx context.Context) error {
		held, _ := fencelock.HeldFrom(ctx)
		return db.ExecContext(ctx, "UPDATE t SET a = 1 WHERE token <= $1", held.Token)
	})
}

func good03(ctx context.Context, locks *fencelock.Locker, s store) error {
	return locks.Do(ctx, "a", func(ctx context.Context) error {
		if _, err := fence.From(ctx); err != nil {
			return err
		}
		return s.Put(ctx, "a", nil)
	})
}

func good04(ctx context.Context, locks *fencelock.Locker, s store) error {
	return locks.Do(ctx, "a", func(ctx context.Context) error {
		_, err := s.Get(ctx, "a")
		return err
	})
}

func good05(ctx context.Context, locks *fencelock.Locker, s store) error {
	if err := s.Put(ctx, "a", nil); err != nil {
		return err
	}
	return locks.Do(ctx, "a", func(ctx context.Context) error { return nil })
}

type header map[string]string

func (h header) Set(key, value string) { h[key] = value }

func good06(ctx context.Context, locks *fencelock.Locker, h header) error {
	return locks.Do(ctx, "a", func(ctx context.Context) error {
		h.Set("a", "b")
		return nil
	})
}

// Several permits of a semaphore are valid at a time.
func good07(ctx context.Context, sem *semaphore.Semaphore, s store) error {
	return sem.Do(ctx, 1, func(ctx context.Context) error { return s.Put(ctx, "a", nil) })
}

func good08(ctx context.Context, keys *idempotent.Store, s store) (int, error) {
	return idempotent.Do(ctx, keys, "a", func(ctx context.Context) (int, error) { return 1, s.Save(ctx) })
}

func good09(ctx context.Context, locks *fencelock.Locker, s store) error {
	return election.Run(ctx, locks, "a", func(ctx context.Context) error {
		return inTx(ctx, func(tx store) error {
			if _, err := fence.From(ctx); err != nil {
				return err
			}
			return tx.Exec("DELETE FROM t")
		})
	})
}

func write(ctx context.Context) error { return nil }

func good10(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", write)
}

func good11(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(ctx context.Context) error { return write(ctx) })
}

func good12(ctx context.Context, locks *fencelock.Locker, lock *fencelock.Lock, s store) error {
	return locks.Do(ctx, "a", func(ctx context.Context) error {
		if lock.Token() == 0 {
			return nil
		}
		return s.Put(ctx, "a", nil)
	})
}
