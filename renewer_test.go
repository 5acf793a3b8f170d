package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/memlock"
)

// scripted is an engine whose answers a test chooses.
type scripted struct {
	driver.Engine
	acquire func(context.Context, driver.Request) (driver.Grant, error)
	renew   func([]driver.Lease) []error
	release func() error

	mu      sync.Mutex // guards batches
	batches []int      // the size of each call of Renew
}

func (s *scripted) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if s.acquire != nil {
		return s.acquire(ctx, req)
	}
	return s.Engine.Acquire(ctx, req)
}

func (s *scripted) Renew(ctx context.Context, leases []driver.Lease) []error {
	s.mu.Lock()
	s.batches = append(s.batches, len(leases))
	s.mu.Unlock()
	if s.renew != nil {
		return s.renew(leases)
	}
	return s.Engine.Renew(ctx, leases)
}

func (s *scripted) Release(ctx context.Context, lease driver.Lease) error {
	err := s.Engine.Release(ctx, lease)
	if s.release != nil {
		return s.release()
	}
	return err
}

// deaf is an engine that never answers a renewal.
type deaf struct {
	driver.Engine
	mu      sync.Mutex // guards calls, longest
	calls   int
	longest time.Duration
}

func (d *deaf) Renew(ctx context.Context, leases []driver.Lease) []error {
	begun := time.Now()
	<-ctx.Done()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	d.longest = max(d.longest, time.Since(begun))
	return []error{ctx.Err()}
}

func TestRenewalsGoInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &scripted{Engine: memlock.New(nil)}
		locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: hour})
		var held []*fencelock.Lock
		for i := range 2500 {
			held = append(held, acquire(t, locks, fmt.Sprint("lock-", i)))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(hour / 2)
		synctest.Wait()
		engine.mu.Lock()
		batches := engine.batches
		engine.mu.Unlock()
		total := 0
		for _, n := range batches {
			total += n
			if n > 1000 {
				t.Errorf("a batch of %d", n)
			}
		}
		if total != 2500 || len(batches) > 5 {
			t.Errorf("%d renewals in %d batches: %v", total, len(batches), batches)
		}
		for _, l := range held {
			if err := l.Err(); err != nil {
				t.Fatal(err)
			}
			if err := l.Release(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A grant that lay unread while its lease ran must not be believed.
func TestAStaleGrantIsConfirmedFirst(t *testing.T) {
	verdict.Is(t, "PostgreSQL: a grant stays unread in a frozen waiter", verdict.Safe)
	synctest.Test(t, func(t *testing.T) {
		inner := memlock.New(nil)
		engine := &scripted{Engine: inner}
		stale := 0
		engine.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			grant, err := inner.Acquire(ctx, req)
			if stale++; stale == 1 {
				time.Sleep(2 * hour) // frozen with the answer in its socket
			}
			return grant, err
		}
		locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: hour})
		lock := acquire(t, locks, "a")
		if stale != 2 {
			t.Errorf("%d acquires, want a second one after the first had lapsed", stale)
		}
		if err := lock.Err(); err != nil {
			t.Error(err)
		}
		_ = lock.Release()
	})
}

func TestAGrantWithoutASendTimeIsConfirmedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memlock.New(nil)
		engine := &scripted{Engine: inner}
		engine.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			grant, err := inner.Acquire(ctx, req)
			grant.Sent = time.Time{}
			return grant, err
		}
		locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: hour})
		lock := acquire(t, locks, "a")
		if len(engine.batches) != 1 || time.Until(lock.Deadline()) <= 0 {
			t.Errorf("%d confirmations, deadline in %v", len(engine.batches), time.Until(lock.Deadline()))
		}
		_ = lock.Release()

		engine.renew = func([]driver.Lease) []error { return []error{errors.New("timed out")} }
		if _, err := locks.TryAcquire(t.Context(), "a"); !errors.Is(err, fencelock.ErrUnavailable) {
			t.Errorf("an unconfirmed grant: %v", err)
		}
		engine.acquire, engine.renew = nil, nil
		lock, err := locks.TryAcquire(t.Context(), "a")
		if err != nil {
			t.Fatalf("the unconfirmed grant was not given back: %v", err)
		}
		_ = lock.Release()
	})
}

// A server that is silent for a while at the hand-over costs a turn, not the wait.
func TestAWaitOutlastsAFailedConfirmation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memlock.New(nil)
		engine := &scripted{Engine: inner}
		var grants, confirmations int
		engine.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			grant, err := inner.Acquire(ctx, req)
			grants++
			grant.Sent = time.Time{}
			return grant, err
		}
		answer := errors.New("timed out")
		engine.renew = func(leases []driver.Lease) []error {
			if confirmations++; confirmations <= 3 {
				return []error{answer}
			}
			return inner.Renew(context.Background(), leases)
		}
		locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: hour})
		lock, err := locks.Acquire(t.Context(), "a")
		if err != nil || grants != 4 {
			t.Fatalf("after %d grants: %v, want the lock with the fourth", grants, err)
		}
		_ = lock.Release()

		grants, confirmations = 0, -1<<31
		begun := time.Now()
		_, err = locks.With(fencelock.Options{Wait: time.Minute}).Acquire(t.Context(), "a")
		if !errors.Is(err, fencelock.ErrUnavailable) || !errors.Is(err, answer) || !errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, fencelock.ErrHeld) || time.Since(begun) != time.Minute || grants > 100 {
			t.Errorf("after %v and %d grants: %v", time.Since(begun), grants, err)
		}
		for _, final := range []error{driver.ErrConfig, driver.ErrInvalid, driver.ErrUnsupported} {
			answer = final
			if _, err := locks.Acquire(t.Context(), "a"); !errors.Is(err, final) {
				t.Errorf("confirming: %v, want %v", err, final)
			}
		}
		engine.acquire, engine.renew = nil, nil
		if lock, err = locks.TryAcquire(t.Context(), "a"); err != nil {
			t.Fatalf("an unconfirmed grant was not given back: %v", err)
		}
		_ = lock.Release()
	})
}

func TestALossReportedBeforeTheGrantIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memlock.New(nil)
		engine := &scripted{Engine: inner}
		engine.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			grant, err := inner.Acquire(ctx, req)
			inner.Lose(req.Name)
			return grant, err
		}
		lock := acquire(t, fencelock.New(engine, nil), "a")
		if err := lock.Err(); !errors.Is(err, fencelock.ErrLost) {
			t.Fatalf("%v, want lost", err)
		}
		_ = lock.Release()
	})
}

func TestReleaseIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memlock.New(nil)
		engine := &scripted{Engine: inner}
		calls := 0
		engine.release = func() error {
			if calls++; calls < 3 {
				return errors.New("the reply was lost")
			}
			return driver.ErrNotHeld
		}
		locks := fencelock.New(engine, nil)
		if err := acquire(t, locks, "a").Release(); err != nil || calls != 3 {
			t.Errorf("after %d calls: %v; not held after an unknown outcome is success", calls, err)
		}
		engine.release = func() error { return errors.New("connection refused") }
		begun := time.Now()
		err := acquire(t, locks, "a").Release()
		if !errors.Is(err, fencelock.ErrUnavailable) || time.Since(begun) > 6*time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
}

// The lease runs from when the engine received the request, which is after the send; a
// holder that counts from the answer would believe in it for too long.
func TestTheDeadlineCountsFromBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = 5 * time.Minute
		inner := memlock.New(nil)
		engine := &scripted{Engine: inner}
		engine.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			grant, err := inner.Acquire(ctx, req)
			time.Sleep(slow) // the answer is on its way
			return grant, err
		}
		engine.renew = func(leases []driver.Lease) []error {
			errs := inner.Renew(context.Background(), leases)
			time.Sleep(slow)
			return errs
		}
		life := hour - hour/50 - 10*time.Millisecond
		locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: hour})
		sent := time.Now()
		lock := acquire(t, locks, "a")
		if got := lock.Deadline().Sub(sent); got != life {
			t.Errorf("granted: the deadline is %v after the send, want %v", got, life)
		}
		time.Sleep(hour/3 + slow)
		if got := lock.Deadline().Sub(sent); got < life+hour/3 || got > life+hour/3+hour/16 {
			t.Errorf("renewed: the deadline is %v after the first send, want a third of the TTL more than %v", got, life)
		}
		_ = lock.Release()
	})
}

func TestAnAttemptToRenewLeavesTimeForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &deaf{Engine: memlock.New(nil)}
		locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: hour})
		lock := acquire(t, locks, "a")
		time.Sleep(50 * time.Minute)
		engine.mu.Lock()
		if engine.calls < 2 || engine.longest != hour/6 {
			t.Errorf("%d attempts, the longest %v, want several of a sixth of the TTL", engine.calls, engine.longest)
		}
		engine.mu.Unlock()
		_ = lock.Release()
		time.Sleep(hour) // until the last attempt is over
	})
}

func TestRenewalsEndWithTheLastLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &scripted{Engine: memlock.New(nil)}
		locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: hour})
		lock := acquire(t, locks, "a")
		time.Sleep(30 * time.Minute)
		_ = lock.Release()
		time.Sleep(10 * hour)
		if len(engine.batches) != 1 {
			t.Errorf("%d renewals, want the one while the lock was held", len(engine.batches))
		}
	})
}

func TestTracerSeesStartsAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards seen
		seen := map[string]int{}
		saw := func(what string) { mu.Lock(); seen[what]++; mu.Unlock() }
		type key struct{}
		tracer := &fencelock.Tracer{
			AcquireStart: func(ctx context.Context, _ fencelock.TraceAcquireStart) context.Context {
				return context.WithValue(ctx, key{}, "span")
			},
			AcquireEnd: func(ctx context.Context, d fencelock.TraceAcquireEnd) {
				if ctx.Value(key{}) != "span" {
					t.Error("the end does not belong to its start")
				}
				saw(fmt.Sprint("acquire ", d.Err == nil, d.Position))
			},
			RenewEnd:   func(_ context.Context, d fencelock.TraceRenewEnd) { saw(fmt.Sprint("renew ", d.Locks, d.Failed)) },
			HoldEnd:    func(_ context.Context, d fencelock.TraceHoldEnd) { saw(fmt.Sprint("hold ", d.Held, d.Lost != nil)) },
			ReleaseEnd: func(_ context.Context, d fencelock.TraceReleaseEnd) { saw(fmt.Sprint("release ", d.Err == nil)) },
		}
		engine := memlock.New(nil)
		locks := fencelock.New(engine, &fencelock.Config{Tracer: tracer}).With(fencelock.Options{TTL: hour})
		lock := acquire(t, locks, "a")
		_, err := locks.With(fencelock.Options{Wait: time.Minute}).Acquire(t.Context(), "a")
		if err == nil {
			t.Fatal("two holders")
		}
		time.Sleep(29 * time.Minute)
		_ = lock.Release()
		engine.Lose("b")
		lost := acquire(t, locks, "b")
		engine.Lose("b")
		_ = lost.Release()
		synctest.Wait() // losses are told a little later
		mu.Lock()
		defer mu.Unlock()
		for _, want := range []string{"acquire true 0", "acquire false 1", "renew 1 0", "hold 30m0s false", "hold 0s true", "release true", "release false"} {
			if seen[want] == 0 {
				t.Errorf("no %q among %v", want, seen)
			}
		}
	})
}

// A Locker that outlives a test's bubble keeps renewing in the next one, though
// the clock that its timer ran by is gone.
func TestALockerServesBubbleAfterBubble(t *testing.T) {
	locks := fencelock.New(memlock.New(nil), nil)
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			lock := acquire(t, locks, "a")
			time.Sleep(10 * time.Minute)
			if err := lock.Err(); err != nil {
				t.Error(err)
			}
			if err := lock.Release(); err != nil {
				t.Error(err)
			}
		})
	}
}
