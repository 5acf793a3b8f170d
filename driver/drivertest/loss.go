package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

// lossCases are about losses as holders see them.
var lossCases = []Case{
	newCase("loss-before-grant", leased, lossBeforeGrant),
}

// lossBeforeGrant: a holder that is cut off, and so cannot renew, knows that it has lost the lock
// before the engine grants it to the next waiter. This case uses a Locker, whose deadlines depend
// on the engine's Sent and TTL.
//
// It fails an engine that sets Grant.Sent to a time after its request, or whose leases expire
// before the TTL that it grants.
func lossBeforeGrant(t *run) {
	c, next := t.client(), t.client()
	ttl := 2 * t.ttl // so that a busy machine renews it in time
	if most := t.traits.MaxTTL; most > 0 {
		ttl = min(ttl, most)
	}
	lock := lockOf(t, fencelock.New(c, nil).With(fencelock.Options{TTL: ttl}), "cut-off")
	defer func() { // also if the case fails: ends the renewals
		t.thaw(c)
		lock.Release()
	}()
	w := t.queue(next, t.shortLease("cut-off"))
	time.Sleep(ttl * 3 / 2) // renewals outlast the first lease
	if err := lock.Err(); err != nil {
		t.Fatalf("the lock did not outlast its first lease: %v", err)
	}
	t.freeze(c)
	w.granted(2*ttl+t.patience, "the waiter behind a holder that was cut off")
	// Err depends on the deadline only. The context may end a moment later if this process is so
	// busy that a timer runs late, which says nothing about the engine.
	if overlap := lock.Deadline().Sub(w.at); overlap > 0 || lock.Err() == nil {
		t.Errorf("the lock's deadline is %v after the next grant; Err is %v", overlap, lock.Err())
	}
	select {
	case <-lock.Context().Done():
	case <-time.After(t.patience):
		t.Fatalf("the lock's context has not ended, although another client was granted the lock")
	}
	if cause := context.Cause(lock.Context()); !errors.Is(cause, driver.ErrLost) {
		t.Errorf("the lock's context ended with cause %v, want ErrLost", cause)
	}
	t.thaw(c)
	t.notHeld(within(t, "Release", func(context.Context) error { return lock.Release() }), "releasing a lost lock")
	w.held.free()
}

// lockOf acquires a free name through a Locker.
func lockOf(t *run, locks *fencelock.Locker, name string) *fencelock.Lock {
	t.Helper()
	type answer struct {
		lock *fencelock.Lock
		err  error
	}
	a := within(t, "Acquire", func(ctx context.Context) answer {
		lock, err := locks.Acquire(ctx, name)
		return answer{lock, err}
	})
	if a.err != nil {
		t.Fatalf("acquiring %q: %v", name, a.err)
	}
	return a.lock
}
