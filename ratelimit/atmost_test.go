package ratelimit_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/ratelimit"
)

// everywhere runs a test in virtual time on rates in memory and on rates that are records, by two
// clients each.
func everywhere(t *testing.T, f func(t *testing.T, one, two driver.RateLimiter)) {
	t.Helper()
	t.Parallel()
	t.Run("rates", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			engine := memlock.New(nil)
			f(t, engine, engine.Client())
		})
	})
	t.Run("records", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			engine := memlock.New(nil)
			f(t, ratelimit.OnRecords(engine.Records()), ratelimit.OnRecords(engine.Client().Records()))
		})
	})
}

// answers fails the test unless a call gives an answer.
func answers(t *testing.T, what string, got ratelimit.Result, err error, want ratelimit.Result) {
	t.Helper()
	want.Limit = got.Limit
	if err != nil || got != want {
		t.Errorf("%s: %+v, %v, want %+v", what, got, err, want)
	}
}

// TestAllowAtMost: what is left is granted, and nothing is a refusal like any other; more than
// the burst is no error.
func TestAllowAtMost(t *testing.T) {
	everywhere(t, func(t *testing.T, one, two driver.RateLimiter) {
		l, other := ratelimit.New(one, "test", tenth, nil), ratelimit.New(two, "test", tenth, nil)
		got, err := l.AllowAtMost(t.Context(), "k", 2)
		answers(t, "two of three", got, err, ratelimit.Result{OK: true, Granted: 2, Remaining: 1, Next: 100 * ms, Reset: 200 * ms})
		got, err = other.AllowAtMost(t.Context(), "k", 2)
		answers(t, "two of one", got, err, ratelimit.Result{OK: true, Granted: 1, Next: 100 * ms, Reset: 300 * ms})
		got, err = l.AllowAtMost(t.Context(), "k", 2)
		answers(t, "two of none", got, err, ratelimit.Result{RetryAfter: 100 * ms, Next: 100 * ms, Reset: 300 * ms})
		time.Sleep(250 * ms)
		got, err = l.AllowAtMost(t.Context(), "k", 1<<40)
		answers(t, "many of two", got, err, ratelimit.Result{OK: true, Granted: 2, Next: 50 * ms, Reset: 250 * ms})
		got, err = l.AllowAtMost(t.Context(), "k", 1<<40)
		answers(t, "many of none", got, err, ratelimit.Result{RetryAfter: 50 * ms, Next: 50 * ms, Reset: 250 * ms})
		for _, n := range []int{0, -1} {
			if got, err := l.AllowAtMost(t.Context(), "k", n); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("at most %d: %+v, %v", n, got, err)
			}
		}
	})
}

// TestPeek: a look says what Allow would, and changes nothing.
func TestPeek(t *testing.T) {
	everywhere(t, func(t *testing.T, one, two driver.RateLimiter) {
		l, other := ratelimit.New(one, "test", tenth, nil), ratelimit.New(two, "test", tenth, nil)
		peek := func(when string, want ratelimit.Result) {
			t.Helper()
			for _, l := range []*ratelimit.Limiter{l, other, l} {
				got, err := l.Peek(t.Context(), "k")
				answers(t, "a look "+when, got, err, want)
			}
		}
		peek("at first", ratelimit.Result{OK: true, Remaining: 3})
		allow(t, l, 2, ratelimit.Result{OK: true, Remaining: 1, Next: 100 * ms, Reset: 200 * ms})
		peek("when there is one left", ratelimit.Result{OK: true, Remaining: 1, Next: 100 * ms, Reset: 200 * ms})
		allow(t, other, 1, ratelimit.Result{OK: true, Next: 100 * ms, Reset: 300 * ms})
		peek("when there is none left", ratelimit.Result{RetryAfter: 100 * ms, Next: 100 * ms, Reset: 300 * ms})
		time.Sleep(30 * ms)
		peek("later", ratelimit.Result{RetryAfter: 70 * ms, Next: 70 * ms, Reset: 270 * ms})
		allow(t, l, 1, ratelimit.Result{RetryAfter: 70 * ms, Next: 70 * ms, Reset: 270 * ms})
	})
}

// TestPeekWritesNothing: a look at rates that are records makes none, and changes none.
func TestPeekWritesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &busy{Records: memlock.New(nil).Records()}
		l := ratelimit.New(ratelimit.OnRecords(b), "test", tenth, nil)
		for range 2 {
			before := b.swaps.Load()
			if got, err := l.Peek(t.Context(), "k"); err != nil || !got.OK || b.swaps.Load() != before {
				t.Errorf("a look: %+v, %v, %d writes", got, err, b.swaps.Load()-before)
			}
			allow(t, l, 1, ratelimit.Result{OK: true, Remaining: 2, Next: 100 * ms, Reset: 100 * ms})
			time.Sleep(time.Minute)
		}
		before := b.swaps.Load()
		if err := l.Reset(t.Context(), "k"); err != nil || b.swaps.Load() != before {
			t.Errorf("a reset of a key that is idle: %v, %d writes", err, b.swaps.Load()-before)
		}
	})
}

// TestReset: all of the burst may happen at once, and once, after a reset; a turn of before is
// not given back then.
func TestReset(t *testing.T) {
	everywhere(t, func(t *testing.T, one, two driver.RateLimiter) {
		l, other := ratelimit.New(one, "test", tenth, nil), ratelimit.New(two, "test", tenth, nil)
		if err := l.Reset(t.Context(), "k"); err != nil {
			t.Errorf("a key that nobody has used: %v", err)
		}
		allow(t, l, 3, ratelimit.Result{OK: true, Next: 100 * ms, Reset: 300 * ms})
		r, err := l.ReserveN(t.Context(), "k", 3)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := other.Reset(t.Context(), "k"); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(ms)
		allow(t, l, 3, ratelimit.Result{OK: true, Next: 100 * ms, Reset: 300 * ms})
		if err := r.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		allow(t, l, 1, ratelimit.Result{RetryAfter: 100 * ms, Next: 100 * ms, Reset: 300 * ms})
		if err := l.Reset(t.Context(), "\xff"); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("a key that is none: %v", err)
		}
		if err := ratelimit.New(one, "test", ratelimit.Limit{}, nil).Reset(t.Context(), "k"); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("a limit that is none: %v", err)
		}
	})
}

// TestDownAtMost: the policies apply to AllowAtMost and Peek, and not to Reset.
func TestDownAtMost(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		local := &ratelimit.Config{Down: ratelimit.FailLocal, Local: ratelimit.Limit{Events: 1, Burst: 2}}
		ls := map[ratelimit.Policy]*ratelimit.Limiter{
			ratelimit.FailClosed: ratelimit.New(engine, "test", tenth, nil),
			ratelimit.FailOpen:   ratelimit.New(engine, "test", tenth, &ratelimit.Config{Down: ratelimit.FailOpen}),
			ratelimit.FailLocal:  ratelimit.New(engine, "test", tenth, local),
		}
		engine.Refuse(errDown)
		for policy, want := range map[ratelimit.Policy]ratelimit.Result{
			ratelimit.FailOpen:  {OK: true, Granted: 3, Remaining: 3},
			ratelimit.FailLocal: {OK: true, Granted: 2, Next: time.Second, Reset: 2 * time.Second},
		} {
			for range 2 { // after a reset too, which says that the engine is down
				look, err := ls[policy].Peek(t.Context(), "k")
				if err != nil || !look.OK || look.Granted != 0 || !errors.Is(look.Err, errDown) {
					t.Errorf("policy %d, a look: %+v, %v", policy, look, err)
				}
				got, err := ls[policy].AllowAtMost(t.Context(), "k", 5)
				if !errors.Is(got.Err, errDown) {
					t.Errorf("policy %d: %v", policy, got.Err)
				}
				got.Err = nil
				answers(t, "at most five", got, err, want)
				if err := ls[policy].Reset(t.Context(), "k"); !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("policy %d, a reset: %v", policy, err)
				}
			}
		}
		if got, err := ls[ratelimit.FailClosed].AllowAtMost(t.Context(), "k", 5); !errors.Is(err, driver.ErrUnavailable) || got.OK {
			t.Errorf("%+v, %v", got, err)
		}
		if got, err := ls[ratelimit.FailClosed].Peek(t.Context(), "k"); !errors.Is(err, driver.ErrUnavailable) || got.OK {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
