// Package lockreentry has names that are acquired twice, and such that are not.
package lockreentry

import (
	"context"
	"time"

	"github.com/fencelock/fencelock"
)

func work(ctx context.Context) error { return ctx.Err() }

const name = "invoices"

type service struct{ locks, readers *fencelock.Locker }

func bad01(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(ctx context.Context) error {
		return locks.Do(ctx, "a", work) // want `"a" is held here already: locks are not re-entrant, so this Locker.Do blocks`
	})
}

func bad02(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, name, func(ctx context.Context) error {
		return locks.TryDo(ctx, "invoices", work) // want `this Locker.TryDo always fails`
	})
}

func bad03(ctx context.Context, locks *fencelock.Locker, id string) error {
	return locks.Do(ctx, "invoice:"+id, func(ctx context.Context) error {
		lock, err := locks.Acquire(ctx, "invoice:"+id) // want `"invoice:" \+ id is held here already`
		if err != nil {
			return err
		}
		return lock.Release()
	})
}

func bad04(ctx context.Context, locks *fencelock.Locker) error {
	lock, err := locks.Acquire(ctx, "a")
	if err != nil {
		return err
	}
	defer lock.Release()
	return locks.Do(ctx, "a", work) // want `"a" is held here already`
}

func (s *service) bad05(ctx context.Context) error {
	return s.locks.DoAll(ctx, []string{"a", "b"}, func(ctx context.Context) error {
		return s.locks.Do(ctx, "b", work) // want `"b" is held here already`
	})
}

// Lockers from With share the engine.
func bad06(ctx context.Context, locks *fencelock.Locker) error {
	patient := locks.With(fencelock.Options{Wait: time.Minute})
	return patient.Do(ctx, "a", func(ctx context.Context) error {
		return locks.Do(ctx, "a", work) // want `"a" is held here already`
	})
}

func bad07(ctx context.Context, locks *fencelock.Locker) error {
	set, err := locks.AcquireAll(ctx, "a", "b")
	if err != nil {
		return err
	}
	lock, err := locks.TryAcquire(ctx, "a") // want `this Locker.TryAcquire always fails`
	if err == nil {
		lock.Release()
	}
	return set.Release()
}

// The locks of the first round are released at the end of the function.
func bad08(ctx context.Context, locks *fencelock.Locker) error {
	for range 3 {
		lock, err := locks.Acquire(ctx, "a") // want `"a" is held here already`
		if err != nil {
			return err
		}
		defer lock.Release()
	}
	return nil
}

func bad09(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(ctx context.Context) error {
		return locks.Do(ctx, "b", func(ctx context.Context) error {
			return locks.Do(ctx, "a", work) // want `"a" is held here already`
		})
	})
}

var global, readers *fencelock.Locker

func open(locks *fencelock.Locker) {
	global = locks
	readers = locks.With(fencelock.Options{Shared: true})
}

func bad10(ctx context.Context, key string) error {
	return global.TryDo(ctx, key, func(ctx context.Context) error {
		if err := global.With(fencelock.Options{TTL: time.Second}).Do(ctx, key, work); err != nil { // want `key is held here already`
			return err
		}
		return nil
	})
}
