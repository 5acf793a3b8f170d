package fencelock_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// panics is a logger that panics at its debug level, as a hook does.
type panics struct{ slog.Handler }

func (panics) Enabled(_ context.Context, level slog.Level) bool { return level == slog.LevelDebug }
func (panics) Handle(context.Context, slog.Record) error        { panic("boom") }

// A callback that panics, or ends its goroutine, leaves nothing behind: no holder,
// no waiter, and no lock that is renewed.
func TestNothingIsLeftBehindACallbackThatPanics(t *testing.T) {
	tracer := func(set func(*fencelock.Tracer)) fencelock.Config {
		var tracer fencelock.Tracer
		set(&tracer)
		return fencelock.Config{Tracer: &tracer}
	}
	for what, cfg := range map[string]fencelock.Config{
		"Logger": {Logger: slog.New(panics{})},
		"AcquireStart": tracer(func(t *fencelock.Tracer) {
			t.AcquireStart = func(context.Context, fencelock.TraceAcquireStart) context.Context { panic("boom") }
		}),
		"AcquireEnd": tracer(func(t *fencelock.Tracer) {
			t.AcquireEnd = func(context.Context, fencelock.TraceAcquireEnd) { panic("boom") }
		}),
		"HoldStart": tracer(func(t *fencelock.Tracer) {
			t.HoldStart = func(context.Context, fencelock.TraceLock) context.Context { panic("boom") }
		}),
		"HoldEnd": tracer(func(t *fencelock.Tracer) {
			t.HoldEnd = func(context.Context, fencelock.TraceHoldEnd) { panic("boom") }
		}),
		"ReleaseStart": tracer(func(t *fencelock.Tracer) {
			t.ReleaseStart = func(context.Context, fencelock.TraceLock) context.Context { panic("boom") }
		}),
		"ReleaseEnd": tracer(func(t *fencelock.Tracer) {
			t.ReleaseEnd = func(context.Context, fencelock.TraceReleaseEnd) { panic("boom") }
		}),
	} {
		for how, use := range map[string]func(*fencelock.Locker){
			"Acquire": func(l *fencelock.Locker) {
				if lock, err := l.Acquire(context.Background(), "a"); err == nil {
					_ = lock.Release()
				}
			},
			"Do": func(l *fencelock.Locker) {
				_ = l.Do(context.Background(), "a", func(context.Context) error { return nil })
			},
			"DoAll": func(l *fencelock.Locker) {
				_ = l.DoAll(context.Background(), []string{"a"}, func(context.Context) error { return nil })
			},
		} {
			t.Run(what+" in "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					locks, engine := newLocks(cfg)
					recovered(t, func() { use(locks) })
					nothing(t, engine)
				})
			})
		}
	}
}

// recovered runs f, which must panic.
func recovered(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() != "boom" {
			t.Error("no panic")
		}
	}()
	f()
}

// nothing fails the test if anybody holds or waits.
func nothing(t *testing.T, engine *memlock.Engine) {
	t.Helper()
	list, err := engine.List(t.Context(), driver.Query{})
	if err != nil || len(list) != 0 {
		t.Errorf("left behind: %+v, %v", list, err)
	}
}

func TestNothingIsLeftBehindOnWaitThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, engine := newLocks(fencelock.Config{})
		held := acquire(t, locks, "b")
		waits := locks.With(fencelock.Options{OnWait: func(fencelock.WaitInfo) { panic("boom") }})
		recovered(t, func() { _, _ = waits.Acquire(t.Context(), "b") })
		recovered(t, func() { _, _ = waits.AcquireAll(t.Context(), "a", "b") })
		if err := held.Release(); err != nil {
			t.Error(err)
		}
		nothing(t, engine)
	})
}

// Several names at once are all given back if the tracer panics over one of them.
func TestNothingIsLeftBehindOfASet(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *fencelock.Locker, engine *memlock.Engine) {
		for _, bad := range []string{"a", "b", "c"} {
			locks := fencelock.New(engine, &fencelock.Config{Tracer: &fencelock.Tracer{
				AcquireEnd: func(_ context.Context, data fencelock.TraceAcquireEnd) {
					if data.Name == bad {
						panic("boom")
					}
				},
			}}).With(fencelock.Options{TTL: hour})
			recovered(t, func() { _, _ = locks.AcquireAll(t.Context(), "a", "b", "c") })
			nothing(t, engine)
		}
	})
}

// A hook that ends its goroutine, as FailNow of a test does, withholds no notice
// after it.
func TestNoticesGoOnAfterAHookThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		locks, engine := newLocks(fencelock.Config{Tracer: &fencelock.Tracer{
			HoldEnd: func(context.Context, fencelock.TraceHoldEnd) { told++; runtime.Goexit() },
		}})
		for _, name := range []string{"a", "b", "c"} {
			acquire(t, locks, name)
			engine.Lose(name)
			synctest.Wait()
		}
		if told != 3 {
			t.Errorf("told of %d losses of 3", told)
		}
	})
}

// A hook that ends the goroutine of a renewal costs that attempt, and no lock.
func TestLocksAreRenewedAfterAHookThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := 20 // more than there are calls of the engine at once
		locks, _ := newLocks(fencelock.Config{Tracer: &fencelock.Tracer{
			RenewStart: func(ctx context.Context, _ fencelock.TraceRenewStart) context.Context {
				if ends--; ends%2 == 0 && ends >= 0 {
					runtime.Goexit()
				}
				return ctx
			},
		}})
		lock := acquire(t, locks, "a")
		time.Sleep(10 * hour)
		if err := errors.Join(lock.Err(), lock.Release()); err != nil || ends > 0 {
			t.Errorf("%v, with %d calls to come", err, ends)
		}
	})
}

// A set is given back as a whole, even if a callback panics for each name of it.
func TestNothingIsLeftBehindOfASetThatIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &unsure{Engine: memlock.New(nil), successes: 2, failures: 1}
		locks := fencelock.New(engine, &fencelock.Config{Tracer: &fencelock.Tracer{
			ReleaseStart: func(context.Context, fencelock.TraceLock) context.Context { panic("boom") },
		}}).With(fencelock.Options{TTL: hour})
		recovered(t, func() { _, _ = locks.AcquireAll(t.Context(), "a", "b", "c") })
		nothing(t, engine.Engine)
	})
}
