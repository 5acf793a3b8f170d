package kube

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/freeze"
)

// two are clients of two API servers on one etcd.
type two struct {
	*testing.T
	second      *server
	here, there *fencelock.Locker
}

func newTwo(t *testing.T) two {
	first := start(t)
	second := first.beside(t)
	namespace := first.namespace(t)
	opts := fencelock.Options{TTL: time.Minute}
	return two{
		t, second,
		fencelock.New(open(first.place(namespace)), nil).With(opts),
		fencelock.New(open(second.place(namespace)), nil).With(opts),
	}
}

// try makes an attempt that must be granted.
func (w two) try(locks *fencelock.Locker) *fencelock.Lock {
	w.Helper()
	lock, err := locks.TryAcquire(w.Context(), "shared")
	if err != nil {
		w.Fatalf("a free lock: %v", err)
	}
	return lock
}

// held fails the test unless the lock is refused.
func (w two) held(locks *fencelock.Locker) {
	w.Helper()
	if lock, err := locks.TryAcquire(w.Context(), "shared"); !errors.Is(err, driver.ErrHeld) {
		w.Fatalf("a lock that is held through the other server: %v, %v", lock, err)
	}
}

func (w two) release(lock *fencelock.Lock) {
	w.Helper()
	if err := lock.Release(); err != nil {
		w.Fatal(err)
	}
}

// freeze stops the second server until thaw is called.
func (w two) freeze() (thaw func()) {
	w.Helper()
	if err := freeze.Process(w.second.api.Process); err != nil {
		w.Fatal(err)
	}
	return func() {
		if err := w.second.api.Process.Signal(syscall.SIGCONT); err != nil {
			w.Error(err)
		}
	}
}

// TestTwoServers: what one API server has stored counts at once at the other one, also if the other
// one has stood still: reads are those of etcd, and not of its cache.
func TestTwoServers(t *testing.T) {
	w := newTwo(t)
	for range 100 {
		lock := w.try(w.here)
		w.held(w.there)
		w.release(lock)
		lock = w.try(w.there)
		w.held(w.here)
		w.release(lock)
	}
	for range 10 {
		w.release(w.try(w.there)) // its last state is a free lock
		thaw := w.freeze()
		lock := w.try(w.here)
		thaw()
		w.held(w.there)
		thaw = w.freeze()
		w.release(lock)
		thaw()
		w.release(w.try(w.there))
	}
}

// TestStaleWatch: a waiter whose server has stood still learns late of a release, after which another
// process has acquired the lock. The waiter is not granted the lock until that process releases it.
func TestStaleWatch(t *testing.T) {
	w := newTwo(t)
	for range 4 {
		lock := w.try(w.here)
		got := make(chan *fencelock.Lock, 1)
		go func() { // ends when it is granted
			next, err := w.there.Acquire(w.Context(), "shared")
			if err != nil {
				w.Error(err)
			}
			got <- next
		}()
		time.Sleep(300 * time.Millisecond) // it watches the lock now
		thaw := w.freeze()
		w.release(lock)
		between, err := w.here.Acquire(w.Context(), "shared") // when the waiter has lost its place
		if err != nil {
			w.Fatal(err)
		}
		thaw()
		select {
		case next := <-got:
			w.Fatalf("the waiter is granted the lock, %v, beside another holder", next)
		case <-time.After(3 * time.Second):
		}
		w.release(between)
		next := <-got
		if next == nil || next.Token() <= between.Token() {
			w.Fatalf("the waiter has the lock %v after the token %d", next, between.Token())
		}
		w.release(next)
	}
}
