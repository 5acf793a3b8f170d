package ratelimit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/ratelimit"
)

var errDown = errors.New("connection refused")

// TestClosed: without an engine nothing is granted, and the error says why; it is asked
// each time.
func TestClosed(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		l := ratelimit.New(engine, "test", tenth, nil)
		engine.Refuse(errDown)
		got, err := l.Allow(t.Context(), "k")
		if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, errDown) || got.OK {
			t.Errorf("%+v, %v", got, err)
		}
		if err := l.Wait(t.Context(), "k"); !errors.Is(err, errDown) {
			t.Errorf("a wait: %v", err)
		}
		engine.Refuse(nil)
		allow(t, l, 1, ratelimit.Result{OK: true, Remaining: 2, Next: 100 * ms, Reset: 100 * ms})
		engine.Hang()
		start := time.Now()
		if _, err := l.Allow(t.Context(), "k"); !errors.Is(err, driver.ErrUnavailable) || time.Since(start) != time.Second {
			t.Errorf("a silent engine: %v after %v", err, time.Since(start))
		}
		engine.Resume()
		allow(t, l, 3, ratelimit.Result{OK: true, Next: 100 * ms, Reset: 300 * ms})
	})
}

// TestOpen: everything is granted, and one request in each pause finds out whether the
// engine is back, while the others do not wait for it.
func TestOpen(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		l := ratelimit.New(engine, "test", tenth, &ratelimit.Config{Down: ratelimit.FailOpen, Timeout: 50 * ms, Pause: 200 * ms})
		down := ratelimit.Result{OK: true, Remaining: 3, Err: driver.ErrUnavailable}
		engine.Hang()
		asked := func(want time.Duration) {
			t.Helper()
			start := time.Now()
			allow(t, l, 3, down)
			if took := time.Since(start); took != want {
				t.Errorf("it took %v, want %v", took, want)
			}
		}
		asked(50 * ms)
		for range 100 {
			asked(0)
		}
		time.Sleep(199 * ms)
		asked(0)
		time.Sleep(ms)
		probe := make(chan struct{})
		go func() { // ends with the timeout
			defer close(probe)
			asked(50 * ms)
		}()
		synctest.Wait()
		asked(0) // beside the one that asks
		if err := l.Wait(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		r, err := l.Reserve(t.Context(), "k")
		if err != nil || r.Delay() != 0 || !errors.Is(r.Result().Err, driver.ErrUnavailable) || r.Cancel(t.Context()) != nil {
			t.Errorf("%+v, %v", r, err)
		}
		<-probe
		engine.Resume()
		asked(0)
		time.Sleep(200 * ms)
		allow(t, l, 3, ratelimit.Result{OK: true, Next: 100 * ms, Reset: 300 * ms})
		allow(t, l, 1, ratelimit.Result{RetryAfter: 100 * ms, Next: 100 * ms, Reset: 300 * ms})
	})
}

// TestLocal: each process keeps a limit of its own.
func TestLocal(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		cfg := &ratelimit.Config{Down: ratelimit.FailLocal, Local: ratelimit.Limit{Events: 1, Burst: 2}}
		l, other := ratelimit.New(engine, "test", tenth, cfg), ratelimit.New(engine, "test", tenth, cfg)
		engine.Refuse(errDown)
		local := ratelimit.Result{Err: errDown, Next: time.Second, Reset: 2 * time.Second}
		granted, refused := local, local
		granted.OK, refused.RetryAfter = true, time.Second
		allow(t, l, 2, granted)
		allow(t, l, 1, refused)
		allow(t, other, 2, granted)
		if _, err := l.AllowN(t.Context(), "k", 3); !errors.Is(err, errDown) {
			t.Errorf("more than the local burst: %v", err)
		}
		start := time.Now()
		r, err := l.Reserve(t.Context(), "k")
		if err != nil || r.Delay() != time.Second {
			t.Fatalf("%v, %v", r.Delay(), err)
		}
		if err := r.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		if err := l.Wait(t.Context(), "k"); err != nil || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		engine.Refuse(nil)
		time.Sleep(time.Second)
		allow(t, l, 3, ratelimit.Result{OK: true, Next: 100 * ms, Reset: 300 * ms})
	})
}

// slow is a record store that takes its time to read, and ignores its context meanwhile.
type slow struct{ driver.Records }

func (s slow) Get(ctx context.Context, key string) (driver.Record, error) {
	rec, err := s.Records.Get(ctx, key)
	time.Sleep(time.Second)
	return rec, err
}

// TestTimeoutBetweenSteps: an engine whose time was up between two of its steps is down, as
// one is that does not answer.
func TestTimeoutBetweenSteps(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		rates := ratelimit.OnRecords(slow{engine.Records()})
		closed := ratelimit.New(rates, "test", tenth, &ratelimit.Config{Timeout: 50 * ms})
		if _, err := closed.Allow(t.Context(), "k"); !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nothing is granted: %v", err)
		}
		open := ratelimit.New(rates, "test", tenth, &ratelimit.Config{Down: ratelimit.FailOpen, Timeout: 50 * ms})
		allow(t, open, 1, ratelimit.Result{OK: true, Remaining: 3, Err: driver.ErrUnavailable})
	})
}

// TestCancelWithoutEngine: a turn that cannot be given back says so.
func TestCancelWithoutEngine(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		l := ratelimit.New(engine, "test", ratelimit.Limit{Events: 1}, nil)
		_, err := l.Reserve(t.Context(), "k")
		r, err2 := l.Reserve(t.Context(), "k")
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		engine.Refuse(errDown)
		if err := r.Cancel(t.Context()); !errors.Is(err, errDown) {
			t.Error(err)
		}
	})
}
