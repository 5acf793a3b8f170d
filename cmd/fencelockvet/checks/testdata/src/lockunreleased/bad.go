// Package lockunreleased has locks that are not released, and locks that are.
package lockunreleased

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/semaphore"
)

func work(ctx context.Context) error { return ctx.Err() }

func bad01(ctx context.Context, locks *fencelock.Locker) error {
	lock, err := locks.Acquire(ctx, "a") // want `never released: write defer lock.Release`
	if err != nil {
		return err
	}
	return work(lock.Context())
}

func bad02(ctx context.Context, locks *fencelock.Locker) error {
	lock, err := locks.Acquire(ctx, "a") // want `not released on every path.*line [0-9]+ returns`
	if err != nil {
		return err
	}
	if err := work(ctx); err != nil {
		return err
	}
	return lock.Release()
}

func bad03(ctx context.Context, locks *fencelock.Locker) {
	_, err := locks.TryAcquire(ctx, "a") // want `dropped, so it cannot be released`
	if err != nil {
		return
	}
	work(ctx)
}

func bad04(ctx context.Context, locks *fencelock.Locker) {
	locks.Acquire(ctx, "a") // want `dropped, so it cannot be released`
	work(ctx)
}

func bad05(ctx context.Context, locks *fencelock.Locker) error {
	set, err := locks.AcquireAll(ctx, "a", "b") // want `AcquireAll is not released on every path`
	if err != nil {
		return err
	}
	if set.Err() != nil {
		return errors.New("lost")
	}
	defer set.Release()
	return work(set.Context())
}

func bad06(ctx context.Context, s *semaphore.Semaphore) error {
	permit, err := s.Acquire(ctx, 2) // want `semaphore.Semaphore.Acquire is never released`
	if err != nil {
		return err
	}
	return work(permit.ContextWith(ctx))
}

// The second error is not that of the acquisition.
func bad07(ctx context.Context, locks *fencelock.Locker) error {
	lock, err := locks.Acquire(ctx, "a") // want `not released on every path`
	if err != nil {
		return err
	}
	err = work(ctx)
	if err != nil {
		return err
	}
	return lock.Release()
}

func bad08(ctx context.Context, locks *fencelock.Locker, names []string) error {
	for _, name := range names {
		lock, err := locks.Acquire(ctx, name) // want `not released on every path`
		if err != nil {
			return err
		}
		if lock.Token() == 1 {
			continue
		}
		lock.Release()
	}
	return nil
}

func bad09(ctx context.Context, locks *fencelock.Locker, urgent bool) error {
	lock, err := locks.TryAcquire(ctx, "a") // want `not released on every path`
	switch {
	case errors.Is(err, fencelock.ErrHeld):
		return nil
	case err != nil:
		return err
	case urgent:
		return work(ctx)
	}
	defer lock.Release()
	return work(ctx)
}

func bad10(ctx context.Context, locks *fencelock.Locker) func() error {
	return func() error {
		var lock *fencelock.Lock
		var err error
		if lock, err = locks.Acquire(ctx, "a"); err == nil && lock != nil { // want `never released`
			return work(ctx)
		}
		return err
	}
}

func bad11(ctx context.Context, locks *fencelock.Locker, c chan int) error {
	set, err := locks.TryAcquireAll(ctx, "a") // want `not released on every path`
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c:
	}
	return set.Release()
}

// A deferred function that reads the error does not release the lock.
func bad12(ctx context.Context, locks *fencelock.Locker) (err error) {
	lock, err := locks.Acquire(ctx, "a") // want `not released on every path`
	defer func() { println(err) }()
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return lock.Release()
}

// The loop never ends, but it acquires the lock again.
func bad13(ctx context.Context, locks *fencelock.Locker) {
	for {
		lock, err := locks.Acquire(ctx, "a") // want `never released`
		if err == nil {
			_ = work(lock.Context())
		}
	}
}

func bad14[T any](ctx context.Context, locks *fencelock.Locker, fn func(context.Context) (T, error)) (v T, err error) {
	lock, err := locks.Acquire(ctx, "a") // want `not released on every path`
	if err != nil {
		return v, err
	}
	if v, err = fn(lock.Context()); err != nil {
		return v, err
	}
	return v, lock.Release()
}

func bad15(ctx context.Context, locks *fencelock.Locker, lease fencelock.Lease) error {
	lock, err := locks.Adopt(ctx, lease) // want `Locker.Adopt is never released`
	if err != nil {
		return err
	}
	if err := lock.SetMaxHold(time.Minute); err != nil {
		return err
	}
	return work(lock.Context())
}
