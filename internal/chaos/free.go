//go:build unix

package chaos

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/driver"
)

// awaitFree waits until a new process has acquired every name, half of them by waiting and half by
// trying. It returns which name took longest, how long, and how long it may take: what is left of
// locks, and what this machine is late, which is no fault of the engine.
func (r *round) awaitFree(left time.Duration) (slowest string, took, bound time.Duration) {
	dead := history.Now()
	engine, end := r.open(context.Background())
	defer func() { _ = end() }()
	locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: r.TTL})
	ctx, cancel := context.WithTimeout(context.Background(), left+time.Minute)
	defer cancel()
	late, stop := lateness(ctx)
	var all sync.WaitGroup
	names := names(r.Own.Names, r.Twins)
	after := make([]time.Duration, len(names))
	for i, name := range names {
		all.Go(func() {
			lock, err := acquire(ctx, locks, name, i%2 == 0)
			after[i] = history.Now() - dead
			if err != nil {
				if ctx.Err() == nil { // or it is closed for longer than the bound
					r.t.Errorf("seed %d: %s: %v", r.seed, name, err)
				}
				return
			}
			if err := lock.Release(); err != nil {
				r.t.Logf("seed %d: %v", r.seed, err) // the machine was late
			}
		})
	}
	all.Wait()
	if lister, ok := engine.(driver.Lister); ok {
		r.awaitNothing(ctx, lister)
	}
	stop()
	took = slices.Max(after)
	return names[slices.Index(after, took)], took, left + 2*late()
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
	for {
		left, err := locks.List(ctx, driver.Query{Prefix: r.Own.Names, Scan: true})
		left = slices.DeleteFunc(left, func(s fencelock.Status) bool { return len(s.Holders)+len(s.Waiters) == 0 })
		switch {
		case err != nil:
			r.t.Errorf("seed %d: list: %v; left: %v", r.seed, err, left)
			return
		case len(left) == 0:
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// lateness measures how late this machine wakes a goroutine and runs a process, as a server's
// is, until stop is called.
func lateness(ctx context.Context) (late func() time.Duration, stop func()) {
	ctx, stop = context.WithCancel(ctx)
	var worst atomic.Int64
	go func() { // ends with ctx
		const nap = 5 * time.Millisecond
		for ctx.Err() == nil {
			slept := history.Now()
			time.Sleep(nap)
			_ = exec.CommandContext(ctx, "true").Run() // one that failed took its time as well
			worst.Store(max(worst.Load(), int64(history.Now()-slept-nap)))
		}
	}()
	return func() time.Duration { return time.Duration(worst.Load()) }, stop
}
