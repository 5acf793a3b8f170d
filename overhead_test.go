package fencelock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/google/go-cmp/cmp"
)

// watchers are Locker configurations of which the first tells nobody.
func watchers() []struct {
	what   string
	tracer *fencelock.Tracer
} {
	return []struct {
		what   string
		tracer *fencelock.Tracer
	}{
		{"no tracer", nil},
		{"one hook", &fencelock.Tracer{AcquireEnd: func(context.Context, fencelock.TraceAcquireEnd) {}}},
		{"all hooks", &fencelock.Tracer{
			AcquireStart: func(ctx context.Context, _ fencelock.TraceAcquireStart) context.Context { return ctx },
			AcquireWait:  func(context.Context, fencelock.TraceAcquireWait) {},
			AcquireEnd:   func(context.Context, fencelock.TraceAcquireEnd) {},
			HoldStart:    func(ctx context.Context, _ fencelock.TraceLock) context.Context { return ctx },
			RenewStart:   func(ctx context.Context, _ fencelock.TraceRenewStart) context.Context { return ctx },
			RenewEnd:     func(context.Context, fencelock.TraceRenewEnd) {},
			HoldEnd:      func(context.Context, fencelock.TraceHoldEnd) {},
			ReleaseStart: func(ctx context.Context, _ fencelock.TraceLock) context.Context { return ctx },
			ReleaseEnd:   func(context.Context, fencelock.TraceReleaseEnd) {},
			Stale:        func(context.Context, fencelock.TraceStale) {},
		}},
	}
}

// A process may hold very many locks, so a lock has no more than 352 bytes, which is a size of which
// the runtime wastes nothing. The next one is 384.
func TestLockIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(fencelock.Lock{}); size > 352 {
		t.Errorf("a lock has %d bytes", size)
	}
}

// counted writes down every call of an engine, and what of it an engine acts on.
type counted struct {
	*memlock.Engine
	began time.Time

	mu    sync.Mutex // guards calls
	calls []string
}

func (c *counted) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, fmt.Sprintf("%v: ", time.Since(c.began))+fmt.Sprintf(format, args...))
}

func (c *counted) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	c.note("acquire %s %v %d %v %v", req.Name, req.Mode, req.Limit, req.TTL, req.Wait)
	return c.Engine.Acquire(ctx, req)
}

func (c *counted) Renew(ctx context.Context, leases []driver.Lease) []error {
	c.note("renew %d", len(leases))
	return c.Engine.Renew(ctx, leases)
}

func (c *counted) Release(ctx context.Context, lease driver.Lease) error {
	c.note("release %s", lease.Name)
	return c.Engine.Release(ctx, lease)
}

// TestHooksChangeNoCall: whoever watches, an engine is asked the same at the same time: for
// locks that are free, waited for, renewed, shared, taken together, lost and released.
func TestHooksChangeNoCall(t *testing.T) {
	var want []string
	for _, w := range watchers() {
		synctest.Test(t, func(t *testing.T) {
			engine := &counted{Engine: memlock.New(nil), began: time.Now()}
			locks := fencelock.New(engine, &fencelock.Config{Tracer: w.tracer}).With(fencelock.Options{TTL: time.Minute})
			first := acquire(t, locks, "a")
			time.AfterFunc(30*time.Second, func() { _ = first.Release() })
			second := acquire(t, locks, "a") // waits for the first
			engine.Lose("a")
			synctest.Wait()
			_ = second.Release()
			seat := acquire(t, locks.With(fencelock.Options{Shared: true, Limit: 2}), "b")
			time.Sleep(2 * time.Minute)
			_ = seat.Release()
			set, err := locks.AcquireAll(t.Context(), "c", "d")
			if err != nil {
				t.Fatal(err)
			}
			_ = set.Release()
			synctest.Wait()
			slices.Sort(engine.calls) // a set is released together
			if want == nil {
				want = engine.calls
			}
			if d := cmp.Diff(want, engine.calls); d != "" || len(want) < 12 {
				t.Errorf("%s: %d calls (-nobody told +got):\n%s", w.what, len(engine.calls), d)
			}
		})
	}
}
