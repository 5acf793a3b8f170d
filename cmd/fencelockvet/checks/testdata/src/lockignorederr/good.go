package lockignorederr

import (
	"context"
	"errors"
	"log"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/idempotent"
)

func good01(ctx context.Context, locks *fencelock.Locker) error {
	return locks.Do(ctx, "a", work)
}

func good02(ctx context.Context, locks *fencelock.Locker) {
	if err := locks.TryDo(ctx, "a", work); err != nil && !errors.Is(err, fencelock.ErrHeld) {
		log.Print(err)
	}
}

// An error of Release is logged by the library, and the lease expires.
func good03(lock *fencelock.Lock, set *fencelock.LockSet) {
	defer set.Release()
	_ = lock.Release()
	lock.Release()
}

func good04(lock *fencelock.Lock) bool { return lock.Err() == nil }

func good05(ctx context.Context, locks *fencelock.Locker, errs chan<- error) {
	go func() { errs <- locks.Do(ctx, "a", work) }()
}

func good06(ctx context.Context, locks *fencelock.Locker) (err error) {
	defer func() { err = locks.Do(ctx, "a", work) }()
	return nil
}

func good07(ctx context.Context, locks *fencelock.Locker) error {
	_, err := locks.Acquire(ctx, "a")
	return err
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func good08(ctx context.Context, locks *fencelock.Locker) {
	must(election.Run(ctx, locks, "a", work))
}

func good09(ctx context.Context, s *idempotent.Store) error {
	_, err := idempotent.Do(ctx, s, "a", func(ctx context.Context) (int, error) { return 1, nil })
	return err
}

type doer struct{}

func (doer) Do(ctx context.Context, name string, fn func(context.Context) error) error { return nil }

// Another method Do.
func good10(ctx context.Context) {
	_ = doer{}.Do(ctx, "a", work)
}

func good11(ctx context.Context, locks *fencelock.Locker) {
	token, _ := fencelock.TokenFrom(ctx)
	locks.With(fencelock.Options{})
	log.Print(token)
}

func good12(ctx context.Context, locks *fencelock.Locker) {
	switch err := locks.Do(ctx, "a", work); {
	case errors.Is(err, fencelock.ErrLost):
	case err != nil:
		log.Print(err)
	}
}
