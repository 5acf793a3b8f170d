package fencelock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/memlock"
)

// labels writes down the kind and the engine that each hook is called with.
type labels struct {
	mu   sync.Mutex // guards seen
	seen map[string]string
}

func (l *labels) note(hook, kind, engine string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[hook] = kind + " on " + engine
}

func (l *labels) tracer() *fencelock.Tracer {
	lock := func(hook string, d fencelock.TraceLock) { l.note(hook, d.Kind, d.Engine) }
	return &fencelock.Tracer{
		AcquireStart: func(ctx context.Context, d fencelock.TraceAcquireStart) context.Context {
			l.note("AcquireStart", d.Kind, d.Engine)
			return ctx
		},
		AcquireWait: func(_ context.Context, d fencelock.TraceAcquireWait) { l.note("AcquireWait", d.Kind, d.Engine) },
		AcquireEnd:  func(_ context.Context, d fencelock.TraceAcquireEnd) { lock("AcquireEnd", d.TraceLock) },
		HoldStart: func(ctx context.Context, d fencelock.TraceLock) context.Context {
			lock("HoldStart", d)
			return ctx
		},
		HoldEnd: func(_ context.Context, d fencelock.TraceHoldEnd) {
			lock(map[bool]string{true: "lost", false: "HoldEnd"}[d.Lost != nil], d.TraceLock)
		},
		RenewStart: func(ctx context.Context, d fencelock.TraceRenewStart) context.Context {
			l.note("RenewStart", "batch", d.Engine)
			return ctx
		},
		RenewEnd: func(_ context.Context, d fencelock.TraceRenewEnd) { l.note("RenewEnd", "batch", d.Engine) },
		ReleaseStart: func(ctx context.Context, d fencelock.TraceLock) context.Context {
			lock("ReleaseStart", d)
			return ctx
		},
		ReleaseEnd: func(_ context.Context, d fencelock.TraceReleaseEnd) { lock("ReleaseEnd", d.TraceLock) },
		Stale:      func(_ context.Context, d fencelock.TraceStale) { l.note("Stale", d.Kind, d.Engine) },
	}
}

// Every hook of a lock is called with the kind of Options and the name of the engine.
func TestHooksHaveKindAndEngine(t *testing.T) {
	for kind, want := range map[string]string{"": fencelock.KindLock, "batch": "batch"} {
		synctest.Test(t, func(t *testing.T) {
			l := &labels{seen: map[string]string{}}
			engine := memlock.New(nil)
			locks := fencelock.New(engine, &fencelock.Config{Tracer: l.tracer()}).With(fencelock.Options{TTL: time.Minute, Kind: kind})
			first := acquire(t, locks, "a")
			time.AfterFunc(30*time.Second, func() { _ = first.Release() })
			second := acquire(t, locks, "a") // waits for the first
			f, err := fence.From(second.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Refuse(second.Context(), "row", 0); !errors.Is(err, fence.ErrStale) {
				t.Errorf("refused with %v", err)
			}
			engine.Lose("a")
			synctest.Wait()
			_ = second.Release()
			l.mu.Lock()
			defer l.mu.Unlock()
			for _, hook := range []string{"AcquireStart", "AcquireWait", "AcquireEnd", "HoldStart", "HoldEnd", "lost", "RenewStart", "RenewEnd", "ReleaseStart", "ReleaseEnd", "Stale"} {
				is := want
				if hook == "RenewStart" || hook == "RenewEnd" {
					is = "batch"
				}
				if got := l.seen[hook]; got != is+" on memory" {
					t.Errorf("kind %q: %s was called with %q", kind, hook, got)
				}
			}
		})
	}
}

// The margin of a batch is what its most urgent lease had left when the answer arrived: about two
// thirds if renewals are in time, and less after failures.
func TestMarginOfRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards margins
		var margins []float64
		engine := memlock.New(nil)
		locks := fencelock.New(engine, &fencelock.Config{Margin: time.Second, Tracer: &fencelock.Tracer{
			RenewEnd: func(_ context.Context, d fencelock.TraceRenewEnd) {
				mu.Lock()
				margins = append(margins, d.Margin)
				mu.Unlock()
			},
		}}).With(fencelock.Options{TTL: 100 * time.Second})
		defer acquire(t, locks, "a").Release()
		time.Sleep(50 * time.Second)
		engine.Refuse(errors.New("maintenance"))
		time.Sleep(80 * time.Second)
		engine.Refuse(nil)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(margins) < 3 || margins[0] < 0.57 || margins[0] > 0.67 {
			t.Fatalf("margins %v, want two thirds less the margin at first", margins)
		}
		if last := slices.Min(margins); last > 0.3 || last < 0 {
			t.Errorf("margins %v: the least is %v after the engine refused for most of a TTL", margins, last)
		}
	})
}

// Locker.Tracer and EngineName are for packages that report through the same tracer.
func TestTracerOfALocker(t *testing.T) {
	tracer := &fencelock.Tracer{TickEnd: func(context.Context, fencelock.TraceTick) {}}
	locks := fencelock.New(memlock.New(nil), &fencelock.Config{Tracer: tracer}).With(fencelock.Options{TTL: time.Minute})
	if locks.Tracer() != tracer || locks.EngineName() != "memory" {
		t.Errorf("tracer %p of %q, want %p of memory", locks.Tracer(), locks.EngineName(), tracer)
	}
	if fencelock.New(memlock.New(nil), nil).Tracer() == nil {
		t.Error("a Locker without a tracer returns nil")
	}
}

// A broken lock is lost for another reason than one that the engine does not know any more.
func TestBrokenIsAReason(t *testing.T) {
	inBubble(t, func(t *testing.T, locks *fencelock.Locker, engine *memlock.Engine) {
		reason := func(name string, end func()) error {
			lock := acquire(t, locks, name)
			end()
			<-lock.Context().Done()
			lost, ok := errors.AsType[*fencelock.LostError](lock.Err())
			if !ok {
				t.Fatalf("%s: %v, want a *LostError", name, lock.Err())
			}
			return lost.Reason
		}
		broken := reason("a", func() { _, _ = locks.Break(t.Context(), "a", "maintenance") })
		if !errors.Is(broken, driver.ErrBroken) || !errors.Is(broken, driver.ErrLost) {
			t.Errorf("after Break the reason is %v", broken)
		}
		if gone := reason("b", func() { engine.Lose("b") }); errors.Is(gone, driver.ErrBroken) {
			t.Errorf("after a loss of data the reason is %v", gone)
		}
	})
}
