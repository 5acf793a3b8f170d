//go:build unix

package chaos

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/driver"
)

// awaitFree waits until a new process has acquired every name, half of them by waiting and half by
// trying, and is in nobody's way. It returns which name took longest, and how long. It gives up a
// minute after left.
func (r *round) awaitFree(left time.Duration) (slowest string, took time.Duration) {
	dead := history.Now()
	engine, end := r.open(context.Background())
	defer func() { _ = end() }()
	locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: r.TTL})
	ctx, cancel := context.WithTimeout(context.Background(), left+time.Minute)
	defer cancel()
	var all sync.WaitGroup
	names := names(r.Own.Names, r.Twins)
	after := make([]time.Duration, len(names))
	for i, name := range names {
		all.Go(func() {
			lock, err := acquire(ctx, locks, name, i%2 == 0)
			after[i] = history.Now() - dead
			if err == nil {
				_ = lock.Release() // the machine may be late
			} else if ctx.Err() == nil { // or it is closed for longer than the bound
				r.t.Errorf("seed %d: %s: %v", r.seed, name, err)
			}
		})
	}
	all.Wait()
	if lister, ok := engine.(driver.Lister); ok {
		r.awaitNothing(ctx, lister)
	}
	took = slices.Max(after)
	return names[slices.Index(after, took)], took
}

// acquire acquires a lock, by waiting or by trying again and again.
func acquire(ctx context.Context, locks *fencelock.Locker, name string, wait bool) (*fencelock.Lock, error) {
	if wait {
		return locks.Acquire(ctx, name)
	}
	for {
		lock, err := locks.TryAcquire(ctx, name)
		if err == nil || ctx.Err() != nil || !errors.Is(err, driver.ErrHeld) && !errors.Is(err, driver.ErrUnavailable) {
			return lock, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// awaitNothing waits until no holder and no waiter is listed any more.
func (r *round) awaitNothing(ctx context.Context, locks driver.Lister) {
	for left := true; left; time.Sleep(20 * time.Millisecond) {
		all, err := locks.List(ctx, driver.Query{Prefix: r.Own.Names, Scan: true})
		if errors.Is(err, driver.ErrUnavailable) && ctx.Err() == nil {
			continue // a server may be starting again
		}
		if err != nil {
			r.t.Errorf("seed %d: list: %v; left: %v", r.seed, err, all)
			return
		}
		left = slices.ContainsFunc(all, func(s fencelock.Status) bool { return len(s.Holders)+len(s.Waiters) > 0 })
	}
}
