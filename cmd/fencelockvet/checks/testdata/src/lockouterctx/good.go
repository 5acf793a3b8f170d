package lockouterctx

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/semaphore"
)

func good01(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(ctx context.Context) error { return work(ctx) })
}

func good02(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", work)
}

// A call that is made in any case, even if the lock is lost.
func good03(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(held context.Context) error {
		defer work(ctx)
		defer func() { _ = work(ctx) }()
		return work(held)
	})
}

func good04(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(held context.Context) error {
		slog.InfoContext(ctx, "it is held")
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return work(context.WithoutCancel(ctx))
	})
}

func good05(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(held context.Context) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-held.Done():
			return context.Cause(held)
		}
	})
}

// The context of the shutdown has nothing to do with that of the lock.
func good06(ctx, shutdown context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(held context.Context) error {
		return work(shutdown)
	})
}

func good07(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(held context.Context) error {
		go work(ctx)
		go func() { _ = work(ctx) }()
		return nil
	})
}

func good08(ctx context.Context, locks *fencelock.Locker) error {
	if err := locks.Do(ctx, "a", func(c context.Context) error { return work(c) }); err != nil {
		return err
	}
	return work(ctx)
}

func good09(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(c context.Context) error {
		ctx, cancel := context.WithTimeout(c, time.Second)
		defer cancel()
		return work(ctx)
	})
}

func good10(r *request, s *semaphore.Semaphore) error {
	return s.Do(r.Context(), 1, func(ctx context.Context) error {
		inner := &request{}
		_ = work(inner.Context())
		return work(ctx)
	})
}

func good11(ctx context.Context, locks *fencelock.Locker, job *cron.Job) error {
	return election.Run(ctx, locks, "a", func(ctx context.Context) error {
		return job.Now(ctx, func(ctx context.Context) error { return work(ctx) })
	})
}

func good12(ctx context.Context, s *idempotent.Store) (int, error) {
	return idempotent.Do[int](ctx, s, "a", func(ctx context.Context) (int, error) { return 0, work(ctx) })
}

func good13(ctx context.Context, locks *fencelock.Locker, lock *fencelock.Lock) error {
	return locks.Do(ctx, "a", func(c context.Context) error {
		return work(lock.ContextWith(ctx))
	})
}

// lastWord returns a context for what is written even when ctx has ended.
func lastWord(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), time.Second)
}

func good14(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(c context.Context) error {
		saving, cancel := lastWord(ctx)
		defer cancel()
		return work(saving)
	})
}

func saveError(ctx context.Context, err error) {}

// After a failure the context of the function may have ended.
func good15(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(held context.Context) error {
		err := work(held)
		if err != nil {
			saveError(ctx, err)
		}
		switch {
		case errors.Is(err, fencelock.ErrLost):
			saveError(ctx, err)
		case held.Err() != nil:
			return work(ctx)
		}
		return err
	})
}

func good16(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(held context.Context) error {
		select {
		case <-held.Done():
			saveError(ctx, held.Err())
			return held.Err()
		case <-time.After(time.Second):
			return work(held)
		}
	})
}

func userOf(ctx context.Context) string { return "" }

// A value of the context is read; nothing is done under it.
func good17(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(held context.Context) error {
		return work(context.WithValue(held, "user", userOf(ctx)))
	})
}
