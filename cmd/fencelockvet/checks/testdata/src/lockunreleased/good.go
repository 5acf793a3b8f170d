package lockunreleased

import (
	"context"
	"errors"
	"log"
	"os"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/semaphore"
)

func good01(ctx context.Context, locks *fencelock.Locker) error {
	lock, err := locks.Acquire(ctx, "a")
	if err != nil {
		return err
	}
	defer lock.Release()
	return work(lock.Context())
}

func good02(ctx context.Context, locks *fencelock.Locker) (err error) {
	lock, err := locks.TryAcquire(ctx, "a")
	if errors.Is(err, fencelock.ErrHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	return work(ctx)
}

func good03(ctx context.Context, locks *fencelock.Locker) (*fencelock.Lock, error) {
	lock, err := locks.Acquire(ctx, "a")
	return lock, err
}

type job struct {
	lock *fencelock.Lock
	all  map[string]*fencelock.Lock
}

func good04(ctx context.Context, locks *fencelock.Locker) (*job, error) {
	lock, err := locks.Acquire(ctx, "a")
	if err != nil {
		return nil, err
	}
	return &job{lock: lock}, nil
}

func (j *job) good05(ctx context.Context, locks *fencelock.Locker) (err error) {
	j.lock, err = locks.Acquire(ctx, "a")
	if err != nil {
		return err
	}
	other, err := locks.Acquire(ctx, "b")
	if err == nil {
		j.all["b"] = other
	}
	return err
}

func good06(ctx context.Context, locks *fencelock.Locker, out chan<- *fencelock.Lock) error {
	lock, err := locks.Acquire(ctx, "a")
	if err != nil {
		return err
	}
	select {
	case out <- lock:
		return nil
	case <-ctx.Done():
		lock.Release()
		return ctx.Err()
	}
}

func keep(*fencelock.Lock) {}

func good07(ctx context.Context, locks *fencelock.Locker) error {
	lock, err := locks.Acquire(ctx, "a")
	if err != nil {
		return err
	}
	keep(lock)
	return nil
}

func good08(ctx context.Context, s *semaphore.Semaphore) error {
	permit, err := s.TryAcquire(ctx, 1)
	if err != nil {
		return err
	}
	go func() {
		defer permit.Release()
		work(permit.Context())
	}()
	return nil
}

func good09(ctx context.Context, locks *fencelock.Locker, names []string) error {
	for _, name := range names {
		lock, err := locks.TryAcquire(ctx, name)
		if err != nil {
			continue
		}
		err = work(lock.Context())
		lock.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// The lock is acquired in a loop until there is no error.
func good10(ctx context.Context, locks *fencelock.Locker) error {
	var lock *fencelock.Lock
	var err error
	for range 3 {
		if lock, err = locks.TryAcquire(ctx, "a"); err == nil {
			break
		}
	}
	if lock == nil {
		return err
	}
	defer lock.Release()
	return work(ctx)
}

func failed(err error) bool { return err != nil }

// The analyzer does not know what a predicate of the program says.
func good11(ctx context.Context, locks *fencelock.Locker) error {
	lock, err := locks.Acquire(ctx, "a")
	if failed(err) {
		return err
	}
	return lock.Release()
}

func good12(ctx context.Context, locks *fencelock.Locker) {
	lock, err := locks.Acquire(ctx, "a")
	if err != nil {
		log.Fatal(err)
	}
	if work(ctx) != nil {
		os.Exit(1) // the lease expires
	}
	lock.Release()
}

func good13(ctx context.Context, locks *fencelock.Locker) error {
	set, err := locks.AcquireAll(ctx, "a", "b")
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { set.Release() })
	return nil
}

func good14(ctx context.Context, locks *fencelock.Locker) (lock *fencelock.Lock, err error) {
	lock, err = locks.Acquire(ctx, "a")
	if err != nil && ctx.Err() == nil {
		lock, err = locks.Acquire(ctx, "b")
	}
	return
}

func good15(ctx context.Context, locks *fencelock.Locker) error {
	lock, err := locks.Acquire(ctx, "a")
	ok := err == nil
	if !ok {
		return nil
	}
	return lock.Release()
}

// A lock of the whole process is held until the process ends.
func good16(ctx context.Context, locks *fencelock.Locker) {
	lock, err := locks.Acquire(ctx, "singleton")
	if err != nil {
		log.Fatal(err)
	}
	for {
		if err := work(lock.Context()); err != nil {
			log.Fatal(err)
		}
	}
}

func good17(ctx context.Context, locks *fencelock.Locker) error {
	lock, err := locks.Acquire(ctx, "a")
	if err != nil {
		return err
	}
	release := lock.Release
	defer release()
	return work(lock.Context())
}

func good18[T any](ctx context.Context, locks *fencelock.Locker, fn func(context.Context) (T, error)) (v T, err error) {
	lock, err := locks.Acquire(ctx, "a")
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	return fn(lock.Context())
}

// The function that releases the lock is deferred before the lock is acquired.
func good19(ctx context.Context, locks *fencelock.Locker, need bool) (err error) {
	var lock *fencelock.Lock
	defer func() {
		if lock != nil {
			lock.Release()
		}
	}()
	if need {
		if lock, err = locks.Acquire(ctx, "a"); err != nil {
			return err
		}
	}
	return work(ctx)
}

func good20(ctx context.Context, locks *fencelock.Locker) (err error) {
	var a, b *fencelock.Lock
	release := func() {
		for _, lock := range []*fencelock.Lock{a, b} {
			if lock != nil {
				lock.Release()
			}
		}
	}
	if a, err = locks.Acquire(ctx, "a"); err != nil {
		return err
	}
	if b, err = locks.Acquire(ctx, "b"); err != nil {
		release()
		return err
	}
	err = work(ctx)
	release()
	return err
}

func good21(ctx context.Context, locks *fencelock.Locker, send func(fencelock.Lease) error) error {
	lock, err := locks.Acquire(ctx, "a")
	if err != nil {
		return err
	}
	if err := send(lock.Lease()); err != nil {
		return errors.Join(err, lock.Release())
	}
	return lock.Detach()
}

func good22(ctx context.Context, locks *fencelock.Locker, lease fencelock.Lease) error {
	lock, err := locks.Adopt(ctx, lease)
	if err != nil {
		return err
	}
	defer lock.Release()
	return work(lock.Context())
}
