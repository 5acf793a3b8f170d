package lockreentry

import (
	"context"
	"errors"

	"github.com/fencelock/fencelock"
)

func good01(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(ctx context.Context) error {
		return locks.Do(ctx, "b", work)
	})
}

func good02(ctx context.Context, locks, others *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(ctx context.Context) error {
		return others.Do(ctx, "a", work)
	})
}

func good03(ctx context.Context, locks *fencelock.Locker) error {
	if err := locks.Do(ctx, "a", work); err != nil {
		return err
	}
	return locks.Do(ctx, "a", work)
}

func good04(ctx context.Context, locks *fencelock.Locker) error {
	lock, err := locks.Acquire(ctx, "a")
	if err != nil {
		return err
	}
	if err := lock.Release(); err != nil {
		return err
	}
	return locks.Do(ctx, "a", work)
}

// The second acquisition happens only if the first one has failed.
func good05(ctx context.Context, locks *fencelock.Locker) error {
	lock, err := locks.TryAcquire(ctx, "a")
	if errors.Is(err, fencelock.ErrHeld) {
		lock, err = locks.Acquire(ctx, "a")
	}
	if err != nil {
		return err
	}
	defer lock.Release()
	return work(ctx)
}

func good06(ctx context.Context, locks *fencelock.Locker) error {
	id := "a"
	return locks.Do(ctx, id, func(ctx context.Context) error {
		id = "b"
		return locks.Do(ctx, id, work)
	})
}

func good07(ctx context.Context, locks *fencelock.Locker, names []string) error {
	for _, name := range names {
		lock, err := locks.Acquire(ctx, name)
		if err != nil {
			return err
		}
		defer lock.Release()
	}
	return nil
}

func good08(ctx context.Context, locks *fencelock.Locker) error {
	readers := locks.With(fencelock.Options{Shared: true})
	return readers.Do(ctx, "a", func(ctx context.Context) error {
		return readers.Do(ctx, "a", work)
	})
}

func good09(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(ctx context.Context) error {
		go func() { _ = locks.Do(ctx, "a", work) }()
		return nil
	})
}

func later(func()) {}

func good10(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", func(context.Context) error {
		later(func() { _ = locks.Do(ctx, "a", work) })
		return nil
	})
}

func good11(ctx context.Context, lockers []*fencelock.Locker) error {
	for _, locks := range lockers {
		lock, err := locks.Acquire(ctx, "a")
		if err != nil {
			return err
		}
		defer lock.Release()
	}
	return nil
}

func good12(locks *fencelock.Locker) *service {
	return &service{locks: locks, readers: locks.With(fencelock.Options{Shared: true})}
}

func (s *service) good13(ctx context.Context) error {
	return s.readers.Do(ctx, "a", func(ctx context.Context) error {
		return s.readers.Do(ctx, "a", work)
	})
}

func good14(ctx context.Context, locks *fencelock.Locker, names []string) error {
	for i := range names {
		name := names[i]
		lock, err := locks.Acquire(ctx, name)
		if err != nil {
			return err
		}
		defer lock.Release()
	}
	return nil
}

func good15(ctx context.Context) error {
	return readers.Do(ctx, "a", func(ctx context.Context) error {
		return readers.Do(ctx, "a", work)
	})
}

type cache struct{ readers *fencelock.Locker }

func newCache(locks *fencelock.Locker) *cache {
	readers := locks.With(fencelock.Options{Shared: true})
	return &cache{readers: readers}
}

func (c *cache) good16(ctx context.Context) error {
	return c.readers.Do(ctx, "a", func(ctx context.Context) error {
		return c.readers.Do(ctx, "a", work)
	})
}

type index struct{ readers *fencelock.Locker }

func newIndex(locks *fencelock.Locker) index {
	return index{locks.With(fencelock.Options{Shared: true})}
}

func (x index) good17(ctx context.Context) error {
	return x.readers.Do(ctx, "a", func(ctx context.Context) error {
		return x.readers.Do(ctx, "a", work)
	})
}
