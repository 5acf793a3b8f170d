package fencelock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/filelock"
)

// capped are options with a maximum hold and a grace.
var capped = fencelock.Options{TTL: time.Second, Grace: 300 * time.Millisecond, MaxHold: 2 * time.Second}

// onTime reports whether something took as long as wanted. A renewal may have set the timer of held
// locks shortly before, and that sleeps for at least a millisecond.
func onTime(took, want time.Duration) bool { return took >= want && took <= want+time.Millisecond }

// TestMaxHold: the context of a lock ends at its maximum hold, and the next holder is granted the
// lock after the grace and not before.
func TestMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var ends []fencelock.TraceHoldEnd
		locks, _ := newLocks(fencelock.Config{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Tracer: &fencelock.Tracer{HoldEnd: func(_ context.Context, e fencelock.TraceHoldEnd) { ends = append(ends, e) }},
		})
		begun := time.Now()
		l := acquire(t, locks.With(capped), "a")
		with := l.ContextWith(t.Context())
		<-l.Context().Done()
		if took := time.Since(begun); !onTime(took, capped.MaxHold) {
			t.Errorf("the context ended after %v, want %v", took, capped.MaxHold)
		}
		cause := context.Cause(l.Context())
		most, ok := errors.AsType[*fencelock.MaxHoldError](cause)
		if !ok || !errors.Is(cause, fencelock.ErrMaxHold) || errors.Is(cause, fencelock.ErrLost) || most.Max != capped.MaxHold || most.Token != l.Token() {
			t.Errorf("the cause is %#v", cause)
		}
		if context.Cause(with) != cause || context.Cause(l.ContextWith(t.Context())) != cause || l.Err() != cause {
			t.Errorf("other contexts: %v; Err: %v", context.Cause(with), l.Err())
		}
		next, err := locks.Acquire(t.Context(), "a")
		if took := time.Since(begun); err != nil || took < capped.MaxHold+capped.Grace || took > capped.MaxHold+capped.Grace+time.Millisecond {
			t.Fatalf("the next holder was granted the lock after %v: %v", took, err)
		}
		if err := l.Release(); !errors.Is(err, fencelock.ErrNotHeld) || !errors.Is(err, fencelock.ErrMaxHold) {
			t.Errorf("a release after the maximum hold: %v", err)
		}
		if err := next.Err(); err != nil {
			t.Errorf("the next holder: %v", err)
		}
		synctest.Wait()
		if len(ends) != 1 || ends[0].Max != most || ends[0].Lost != nil || !onTime(ends[0].Held, capped.MaxHold+capped.Grace) {
			t.Errorf("HoldEnd: %+v", ends)
		}
		if text := log.String(); strings.Contains(text, "lost") || !strings.Contains(text, "maximum hold is over") {
			t.Errorf("logged: %s", text)
		}
		_ = next.Release()
	})
}

// TestDoReturnsTheMaximumHold: fn stops at the end of its context, within the grace.
func TestDoReturnsTheMaximumHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, _ := newLocks(fencelock.Config{})
		begun := time.Now()
		stopped := errors.New("stopped")
		work := func(ctx context.Context) error {
			<-ctx.Done()
			return stopped
		}
		for what, err := range map[string]error{
			"Do":    locks.With(capped).Do(t.Context(), "a", work),
			"DoAll": locks.With(capped).DoAll(t.Context(), []string{"a", "b"}, work),
		} {
			if !errors.Is(err, fencelock.ErrMaxHold) || !errors.Is(err, stopped) || errors.Is(err, fencelock.ErrLost) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if took := time.Since(begun); !onTime(took/2, capped.MaxHold) {
			t.Errorf("both took %v, want no grace for work that has stopped", took)
		}
		if _, err := locks.TryAcquire(t.Context(), "a"); err != nil {
			t.Errorf("after the work: %v", err)
		}
	})
}

// TestMaxHoldOfOneThatIsTooShort: the end of a hold that is over before its acquisition returns is
// reported once, after the end of the acquisition.
func TestMaxHoldOfOneThatIsTooShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []string
		locks, _ := newLocks(fencelock.Config{Tracer: &fencelock.Tracer{
			AcquireEnd: func(context.Context, fencelock.TraceAcquireEnd) {
				time.Sleep(time.Second)
				events = append(events, "acquired")
			},
			HoldEnd: func(_ context.Context, e fencelock.TraceHoldEnd) {
				if errors.Is(e.Max, fencelock.ErrMaxHold) {
					events = append(events, "over")
				}
			},
		}})
		l := acquire(t, locks.With(fencelock.Options{MaxHold: 1}), "a")
		time.Sleep(time.Second)
		if err := l.Err(); !errors.Is(err, fencelock.ErrMaxHold) {
			t.Errorf("Err: %v", err)
		}
		if got := strings.Join(events, " "); got != "acquired over" {
			t.Errorf("events: %s", got)
		}
	})
}

// TestReleaseBeforeTheMaximumHold: a maximum hold that is not reached changes nothing.
func TestReleaseBeforeTheMaximumHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, _ := newLocks(fencelock.Config{})
		l := acquire(t, locks.With(capped), "a")
		ctx := l.Context()
		time.Sleep(capped.MaxHold - 1)
		if err := l.Err(); err != nil {
			t.Error(err)
		}
		if err := l.Release(); err != nil {
			t.Error(err)
		}
		if cause := context.Cause(ctx); cause != context.Canceled {
			t.Errorf("the cause is %v", cause)
		}
		time.Sleep(time.Minute)
		if err := l.Err(); !errors.Is(err, fencelock.ErrNotHeld) || errors.Is(err, fencelock.ErrMaxHold) {
			t.Errorf("Err: %v", err)
		}
	})
}

// TestMaxHoldOfALostLock: the loss comes first and is what the holder gets. A lock that is lost
// within the grace has reached its maximum.
func TestMaxHoldOfALostLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, engine := newLocks(fencelock.Config{})
		l := acquire(t, locks.With(capped), "a")
		engine.Lose("a")
		time.Sleep(time.Minute)
		if err := l.Err(); !errors.Is(err, fencelock.ErrLost) || errors.Is(err, fencelock.ErrMaxHold) {
			t.Errorf("lost before: %v", err)
		}
		l = acquire(t, locks.With(capped), "a")
		time.Sleep(capped.MaxHold)
		synctest.Wait()
		engine.Lose("a")
		time.Sleep(time.Minute)
		if err := l.Err(); !errors.Is(err, fencelock.ErrMaxHold) || errors.Is(err, fencelock.ErrLost) {
			t.Errorf("lost after: %v", err)
		}
	})
}

// TestMaxHoldWithoutTheEngine: the work has its grace after the maximum hold, also if the engine does
// not answer for a while.
func TestMaxHoldWithoutTheEngine(t *testing.T) {
	o := fencelock.Options{TTL: 3 * time.Second, Grace: time.Second, MaxHold: 1500 * time.Millisecond}
	over := o.MaxHold + o.Grace
	for _, c := range []struct{ back, next time.Duration }{
		{2200 * time.Millisecond, over}, // before the grace is over
		{2700 * time.Millisecond, 2700 * time.Millisecond},
		{time.Minute, o.TTL}, // only the end of the lease frees the name
	} {
		synctest.Test(t, func(t *testing.T) {
			locks, engine := newLocks(fencelock.Config{})
			begun := time.Now()
			l := acquire(t, locks.With(o), "a")
			engine.Refuse(fencelock.ErrUnavailable)
			time.AfterFunc(c.back, func() { engine.Refuse(nil) })
			<-l.Context().Done()
			if took, cause := time.Since(begun), context.Cause(l.Context()); took < o.MaxHold || took > o.MaxHold+10*time.Millisecond || !errors.Is(cause, fencelock.ErrMaxHold) {
				t.Errorf("the context ended after %v: %v", took, cause)
			}
			next := acquire(t, fencelock.New(engine.Client(), nil), "a")
			if took := time.Since(begun); took < c.next || took > c.next+time.Second {
				t.Errorf("the engine answers after %v: the next holder was granted the lock after %v, want %v", c.back, took, c.next)
			}
			_ = next.Release()
			time.Sleep(time.Minute)
		})
	}
}

// TestMaxHoldWithoutALease: on files the context ends, and the process keeps the lock until it
// releases it.
func TestMaxHoldWithoutALease(t *testing.T) {
	locks := fencelock.New(filelock.New(t.TempDir(), nil), nil).With(fencelock.Options{MaxHold: 20 * time.Millisecond})
	err := locks.Do(t.Context(), "a", func(ctx context.Context) error {
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, fencelock.ErrMaxHold) {
			t.Errorf("the cause is %v", cause)
		}
		time.Sleep(20 * time.Millisecond) // nothing must happen meanwhile
		if _, err := locks.TryAcquire(t.Context(), "a"); !errors.Is(err, fencelock.ErrHeld) {
			t.Errorf("another process, while fn runs: %v", err)
		}
		return nil
	})
	if !errors.Is(err, fencelock.ErrMaxHold) {
		t.Errorf("Do: %v", err)
	}
	l, err := locks.TryAcquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Release()
}

// TestMaxHoldAndReleaseAtOnce: whenever a lock is released around its maximum hold, its end is
// reported once, and the next holder gets the lock at the end of the grace at the latest.
func TestMaxHoldAndReleaseAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ends atomic.Int64
		locks, _ := newLocks(fencelock.Config{Tracer: &fencelock.Tracer{
			HoldEnd: func(context.Context, fencelock.TraceHoldEnd) { ends.Add(1) },
		}})
		var all sync.WaitGroup
		begun, over := time.Now(), capped.MaxHold+capped.Grace
		count := int64(0)
		for _, at := range []time.Duration{capped.MaxHold - 1, capped.MaxHold, capped.MaxHold + 1, over - 1, over, over + 1} {
			for i := range 20 {
				count++
				name := fmt.Sprint(at, i)
				l := acquire(t, locks.With(capped), name)
				ctx := l.ContextWith(t.Context())
				all.Go(func() {
					time.Sleep(at)
					err := l.Release()
					if early := at < over; early && err != nil || at > over && !errors.Is(err, fencelock.ErrMaxHold) {
						t.Errorf("a release at %v: %v", at, err)
					}
					if ctx.Err() == nil {
						t.Errorf("the context lasts after a release at %v", at)
					}
				})
				all.Go(func() {
					next, err := locks.Acquire(t.Context(), name)
					if took := time.Since(begun); err != nil || took < min(at, over) || took > over+time.Millisecond {
						t.Errorf("the next holder was granted the lock after %v: %v", took, err)
						return
					}
					_ = next.Release()
				})
			}
		}
		all.Wait()
		synctest.Wait()
		if ends.Load() != 2*count {
			t.Errorf("%d holds ended, want %d", ends.Load(), 2*count)
		}
	})
}

// TestMaxHoldOfASet: the maximum hold of a set counts from when it has all names, and a wait that is
// longer keeps its place in the queue.
func TestMaxHoldOfASet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, _ := newLocks(fencelock.Config{})
		b := acquire(t, locks, "b")
		var order []string
		begun := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			set, err := locks.With(capped).AcquireAll(t.Context(), "a", "b")
			if err != nil {
				t.Error(err)
				return
			}
			order = append(order, "set")
			<-set.Context().Done()
			most, ok := errors.AsType[*fencelock.MaxHoldError](context.Cause(set.Context()))
			if took := time.Since(begun); !onTime(took, 10*time.Second+capped.MaxHold) || !ok || most.Max != capped.MaxHold {
				t.Errorf("the set ended after %v: %v", took, context.Cause(set.Context()))
			}
		})
		time.Sleep(time.Second)
		all.Go(func() {
			later, err := locks.Acquire(t.Context(), "b")
			if took := time.Since(begun); err != nil || took < 10*time.Second+capped.MaxHold+capped.Grace {
				t.Errorf("a later waiter was granted the lock after %v: %v", took, err)
				return
			}
			order = append(order, "later")
			_ = later.Release()
		})
		time.Sleep(9 * time.Second)
		_ = b.Release()
		all.Wait()
		if got := strings.Join(order, " "); got != "set later" {
			t.Errorf("granted: %s", got)
		}
	})
}

// TestReleaseWaitsForTheReleaseAfterTheMaximumHold: a program that ends after Release leaves nothing
// locked.
func TestReleaseWaitsForTheReleaseAfterTheMaximumHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := false
		locks, _ := newLocks(fencelock.Config{Tracer: &fencelock.Tracer{
			ReleaseStart: func(ctx context.Context, _ fencelock.TraceLock) context.Context {
				time.Sleep(100 * time.Millisecond)
				return ctx
			},
			ReleaseEnd: func(context.Context, fencelock.TraceReleaseEnd) { released = true },
		}})
		l := acquire(t, locks.With(capped), "a")
		time.Sleep(capped.MaxHold + capped.Grace + 1)
		if err := l.Release(); !errors.Is(err, fencelock.ErrMaxHold) || !released {
			t.Errorf("Release returned %v, released: %v", err, released)
		}
	})
}

// TestSetMaxHold: a lock is held for the maximum that was set last, counted from then. After that
// nothing changes it.
func TestSetMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, _ := newLocks(fencelock.Config{})
		for _, c := range []struct {
			first, then, held time.Duration
		}{
			{2 * time.Second, 5 * time.Second, 6 * time.Second},
			{5 * time.Second, time.Second, 2 * time.Second},
			{time.Hour, 1, time.Second + 1},
			{0, 3 * time.Second, 4 * time.Second},
			{2 * time.Second, 0, 0},
		} {
			begun := time.Now()
			l := acquire(t, locks.With(fencelock.Options{TTL: time.Second, MaxHold: c.first}), "a")
			time.Sleep(time.Second)
			if err := l.SetMaxHold(c.then); err != nil {
				t.Fatal(err)
			}
			if c.held == 0 {
				time.Sleep(time.Hour)
				if err := l.Release(); err != nil {
					t.Errorf("%+v: %v", c, err)
				}
				continue
			}
			<-l.Context().Done()
			most, _ := errors.AsType[*fencelock.MaxHoldError](context.Cause(l.Context()))
			if took := time.Since(begun); took < c.held || took > c.held+time.Millisecond || most == nil || most.Max != c.then {
				t.Errorf("%+v: the context ended after %v: %v", c, took, context.Cause(l.Context()))
			}
			if err := l.SetMaxHold(time.Hour); !errors.Is(err, fencelock.ErrMaxHold) {
				t.Errorf("a maximum that is set after the end: %v", err)
			}
			synctest.Wait()
		}
		l := acquire(t, locks, "a")
		for _, wrong := range []time.Duration{-1, 11 * 365 * 24 * time.Hour} {
			if err := l.SetMaxHold(wrong); !errors.Is(err, fencelock.ErrInvalid) {
				t.Errorf("a maximum of %v: %v", wrong, err)
			}
		}
		_ = l.Release()
		if err := l.SetMaxHold(time.Second); !errors.Is(err, fencelock.ErrNotHeld) {
			t.Errorf("a maximum for a released lock: %v", err)
		}
	})
}

// TestListsShowTheMaximumHold: a list shows the maximum of holders and waiters, and what is left.
func TestListsShowTheMaximumHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, _ := newLocks(fencelock.Config{})
		l := acquire(t, locks.With(fencelock.Options{MaxHold: time.Minute}), "a")
		go func() { // ends when the lock is released
			if err := locks.Do(t.Context(), "a", func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(20 * time.Second)
		s, err := locks.Status(t.Context(), "a")
		if err != nil || len(s.Holders) != 1 || len(s.Waiters) != 1 {
			t.Fatalf("%+v, %v", s, err)
		}
		if left := time.Until(s.Holders[0].MaxUntil()); left != 40*time.Second || s.Holders[0].MaxHold != time.Minute {
			t.Errorf("%v of %v is left", left, s.Holders[0].MaxHold)
		}
		if s.Waiters[0].MaxHold != 0 || !(driver.Holder{Since: time.Now()}).MaxUntil().IsZero() {
			t.Errorf("no maximum: %+v", s.Waiters[0])
		}
		_ = l.Release()
		synctest.Wait()
	})
}
