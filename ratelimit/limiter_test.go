package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/ratelimit"
)

var tenth = ratelimit.Limit{Events: 10, Burst: 3} // 10/s

// bubble runs a test in virtual time on a new store.
func bubble(t *testing.T, f func(t *testing.T, engine *memlock.Engine)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(t, memlock.New(nil)) })
}

// patient is for tests in real time.
var patient = &ratelimit.Config{Timeout: time.Minute}

// allow fails the test unless n events are decided about as wanted.
func allow(t *testing.T, l *ratelimit.Limiter, n int, want ratelimit.Result) {
	t.Helper()
	got, err := l.AllowN(t.Context(), "k", n)
	if err != nil {
		t.Fatal(err)
	}
	want.Limit = got.Limit
	if want.OK {
		want.Granted = n
	}
	if want.Err != nil && errors.Is(got.Err, want.Err) {
		got.Err = want.Err
	}
	if got != want {
		t.Errorf("%d events: %+v, want %+v", n, got, want)
	}
}

const ms = time.Millisecond

func TestAllow(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		l := ratelimit.New(engine, "test", tenth, nil)
		other := ratelimit.New(engine.Client(), "test", tenth, nil)
		allow(t, l, 1, ratelimit.Result{OK: true, Remaining: 2, Next: 100 * ms, Reset: 100 * ms})
		allow(t, other, 2, ratelimit.Result{OK: true, Next: 100 * ms, Reset: 300 * ms})
		allow(t, l, 1, ratelimit.Result{RetryAfter: 100 * ms, Next: 100 * ms, Reset: 300 * ms})
		time.Sleep(99999 * time.Microsecond)
		allow(t, other, 1, ratelimit.Result{RetryAfter: 1000, Next: 1000, Reset: 200*ms + 1000})
		time.Sleep(time.Microsecond)
		allow(t, l, 2, ratelimit.Result{Remaining: 1, RetryAfter: 100 * ms, Next: 100 * ms, Reset: 200 * ms})
		allow(t, l, 1, ratelimit.Result{OK: true, Next: 100 * ms, Reset: 300 * ms})
		time.Sleep(time.Hour)
		allow(t, l, 3, ratelimit.Result{OK: true, Next: 100 * ms, Reset: 300 * ms})
		time.Sleep(time.Hour)
		if got, err := l.Allow(t.Context(), "another"); err != nil || got.Remaining != 2 || got.Limit != (ratelimit.Limit{Events: 10, Per: time.Second, Burst: 3}) {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestNames: limiters of one engine are apart by their names, and together by them.
func TestNames(t *testing.T) {
	t.Parallel()
	engine := memlock.New(nil)
	hour := ratelimit.Limit{Events: 1, Per: time.Hour}
	for _, c := range []struct {
		name string
		want bool
	}{{"a", true}, {"b", true}, {"a", false}} {
		if got, err := ratelimit.New(engine, c.name, hour, patient).Allow(t.Context(), "k"); err != nil || got.OK != c.want {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

// TestNamesThatLookLikeOthers: no key of one limiter is a key of another one, whatever its
// callers choose it to be.
func TestNamesThatLookLikeOthers(t *testing.T) {
	t.Parallel()
	engine := memlock.New(nil)
	for _, c := range []struct{ name, key string }{
		{"login", "ip:10.0.0.1"}, {"login:ip", "10.0.0.1"}, {"login:", "ip:10.0.0.1"}, {"login%3Aip", "10.0.0.1"},
		{"login%", "3Aip:10.0.0.1"}, {"", "login:ip:10.0.0.1"}, {":", "login"}, {"", ":login"}, {"login", ""}, {"", "login"},
	} {
		l := ratelimit.New(engine, c.name, ratelimit.Limit{Events: 1, Per: time.Hour}, patient)
		if got, err := l.Allow(t.Context(), c.key); err != nil || !got.OK {
			t.Errorf("%q of %q, which nobody has used: %+v, %v", c.key, c.name, got, err)
		}
	}
}

// TestAnotherLimit: a new limit counts from the next call, and what was taken under the old one
// keeps the time that it took.
func TestAnotherLimit(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		slow := ratelimit.New(engine, "test", ratelimit.PerSecond(2), nil)
		allow(t, slow, 2, ratelimit.Result{OK: true, Next: 500 * ms, Reset: time.Second})
		fast := ratelimit.New(engine, "test", ratelimit.PerSecond(10), nil)
		allow(t, fast, 1, ratelimit.Result{RetryAfter: 100 * ms, Next: 100 * ms, Reset: time.Second})
	})
}

// TestErrors: what makes no sense is ErrInvalid, and an ended context its own error, whatever
// the policy, and without the engine.
func TestErrors(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		engine.Hang()
		for name, limit := range map[string]ratelimit.Limit{
			"no events":       {Burst: 1},
			"negative":        {Events: -1},
			"negative time":   {Events: 1, Per: -time.Second},
			"negative burst":  {Events: 1, Burst: -1},
			"a year":          {Events: 1, Per: 365 * 24 * time.Hour, Burst: 2},
			"much":            {Events: 1, Per: time.Hour, Burst: 1 << 62},
			"uneven":          {Events: 30_000},
			"below a us":      {Events: 2_000_000},
			"far below a us":  {Events: 1 << 62},
			"a nanosecond":    {Events: 1, Per: 1},
			"below a us each": {Events: 1100, Per: time.Millisecond},
		} {
			l := ratelimit.New(engine, "test", limit, &ratelimit.Config{Down: ratelimit.FailOpen})
			_, err := l.Allow(t.Context(), "k")
			_, err2 := l.Reserve(t.Context(), "k")
			for _, err := range []error{err, err2, l.Wait(t.Context(), "k")} {
				if !errors.Is(err, driver.ErrInvalid) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		for name, local := range map[string]ratelimit.Limit{"of nothing": {}, "of one for ever": {Events: 1, Per: math.MaxInt64}} {
			l := ratelimit.New(engine, "test", tenth, &ratelimit.Config{Down: ratelimit.FailLocal, Local: local})
			if got, err := l.Allow(t.Context(), "k"); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("a local limit %s: %+v, %v", name, got, err)
			}
		}
		for _, cfg := range []ratelimit.Config{{Down: -1}, {Down: ratelimit.FailLocal + 1}, {Timeout: -1}, {Pause: -1}} {
			if _, err := ratelimit.New(engine, "test", tenth, &cfg).Allow(t.Context(), "k"); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%+v: %v", cfg, err)
			}
		}
		l := ratelimit.New(engine, "test", tenth, &ratelimit.Config{Down: ratelimit.FailOpen})
		for _, c := range []struct {
			key string
			n   int
		}{{"k", 0}, {"k", -1}, {"k", 4}, {strings.Repeat("k", 508), 1}, {"\xff", 1}} {
			if _, err := l.AllowN(t.Context(), c.key, c.n); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%d of %.10q: %v", c.n, c.key, err)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.Allow(ended, "k"); !errors.Is(err, context.Canceled) {
			t.Errorf("an ended context: %v", err)
		}
		ended, cancel = context.WithTimeout(t.Context(), ms)
		defer cancel()
		if _, err := l.Allow(ended, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a context that ends before the engine answers: %v", err)
		}
		if now, err := l.Allow(t.Context(), "k"); err != nil || now.Err == nil {
			t.Errorf("after it: %+v, %v", now, err)
		}
	})
}

// TestRounding: a rate is never more than asked for, and at most a percent less.
func TestRounding(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		for _, limit := range []ratelimit.Limit{
			{Events: 3, Burst: 3}, {Events: 7, Per: time.Minute, Burst: 1}, {Events: 10_000, Burst: 1}, {Events: 9_900, Burst: 2},
			{Events: 1_000_000, Burst: 5}, {Events: 1_000_000, Per: 2 * time.Second, Burst: 5},
		} {
			l := ratelimit.New(engine, limit.String(), limit, nil)
			if limit.Per == 0 {
				limit.Per = time.Second
			}
			took := time.Duration(0)
			for range 200 {
				r, err := l.Reserve(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				took = r.Delay()
			}
			want := time.Duration(200-limit.Burst) * limit.Per / time.Duration(limit.Events)
			if took < want || took > want+want/100 {
				t.Errorf("%v: the last of 200 after %v, want %v or a percent more", limit, took, want)
			}
		}
	})
}

func TestReserve(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		l := ratelimit.New(engine, "test", tenth, nil)
		var rs []*ratelimit.Reservation
		for i := range 6 {
			r, err := l.Reserve(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			if want := time.Duration(max(0, i-2)) * 100 * ms; r.Delay() != want {
				t.Errorf("reservation %d: %v, want %v", i, r.Delay(), want)
			}
			if !r.Result().OK || r.Result().Remaining != max(0, 2-i) {
				t.Errorf("reservation %d: %+v", i, r.Result())
			}
			rs = append(rs, r)
		}
		cancelled := func(i int) {
			t.Helper()
			for range 2 {
				if err := rs[i].Cancel(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
		turn := func(want time.Duration) {
			t.Helper()
			r, err := l.Reserve(t.Context(), "k")
			if err != nil || r.Delay() != want {
				t.Errorf("the next turn in %v, %v, want %v", r.Delay(), err, want)
			}
			rs = append(rs, r)
		}
		cancelled(5)
		turn(300 * ms) // that of the one that was cancelled
		cancelled(4)   // others came after it
		turn(400 * ms)
		time.Sleep(400 * ms)
		cancelled(7) // its turn has come
		if err := rs[7].Cancel(t.Context()); err != nil || rs[7].Delay() != 0 {
			t.Errorf("%v, in %v", err, rs[7].Delay())
		}
		turn(100 * ms)
		three, err := l.ReserveN(t.Context(), "k", 3)
		if err != nil || three.Delay() != 400*ms {
			t.Errorf("three at once in %v, %v", three.Delay(), err)
		}
	})
}

func TestReserveTooLate(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		l := ratelimit.New(engine, "test", ratelimit.Limit{Events: 1, Per: 150 * 24 * time.Hour}, nil)
		for want := range 2 {
			if r, err := l.Reserve(t.Context(), "k"); err != nil || r.Delay() != time.Duration(want)*150*24*time.Hour {
				t.Fatalf("reservation %d: %v", want, err)
			}
		}
		_, err := l.Reserve(t.Context(), "k")
		facts, ok := errors.AsType[*ratelimit.LimitedError](err)
		if !ok || !errors.Is(err, ratelimit.ErrLimited) || facts.Key != "k" || facts.RetryAfter != 300*24*time.Hour {
			t.Errorf("a turn in 300 days: %v", err)
		}
	})
}

// TestWait: those who wait get turns at the rate, each its own.
func TestWait(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		start := time.Now()
		turns := make(chan time.Duration, 50)
		for range cap(turns) {
			l := ratelimit.New(engine.Client(), "test", tenth, nil)
			go func() { // ends when its turn has come
				if err := l.Wait(t.Context(), "k"); err != nil {
					t.Error(err)
				}
				turns <- time.Since(start)
			}()
		}
		for i := range cap(turns) {
			if got, want := <-turns, time.Duration(max(0, i-2))*100*ms; got != want {
				t.Errorf("turn %d after %v, want %v", i, got, want)
			}
		}
	})
}

// TestWaitNoLongerThanMay: a wait that would be too long is over at once and takes nothing,
// and one that is broken off gives its turn back.
func TestWaitNoLongerThanMay(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		l := ratelimit.New(engine, "test", tenth, nil)
		if err := l.WaitN(t.Context(), "k", 3); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		short, cancel := context.WithTimeout(t.Context(), 299*ms)
		defer cancel()
		err := l.WaitN(short, "k", 3)
		facts, ok := errors.AsType[*ratelimit.LimitedError](err)
		if !ok || facts.RetryAfter != 300*ms || time.Since(start) != 0 {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if want := `ratelimit: limit exceeded: "k" is limited to 10/s, burst 3; retry after 300ms`; fmt.Sprint(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
		broken, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*ms, cancel)
		if err := l.WaitN(broken, "k", 3); !errors.Is(err, context.Canceled) || time.Since(start) != 100*ms {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if err := l.WaitN(t.Context(), "k", 3); err != nil || time.Since(start) != 300*ms {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

// TestWaitForASlowEngine: a turn that comes too late because the answer took its time is given
// back at once, before others take.
func TestWaitForASlowEngine(t *testing.T) {
	bubble(t, func(t *testing.T, engine *memlock.Engine) {
		l := ratelimit.New(engine, "test", tenth, nil)
		if err := l.WaitN(t.Context(), "k", 3); err != nil {
			t.Fatal(err)
		}
		slow := engine.Client()
		slow.Delay(50 * ms)
		time.AfterFunc(10*ms, func() { slow.Delay(0) }) // for the return
		short, cancel := context.WithTimeout(t.Context(), 70*ms)
		defer cancel()
		start := time.Now()
		err := ratelimit.New(slow, "test", tenth, nil).Wait(short, "k")
		if facts, ok := errors.AsType[*ratelimit.LimitedError](err); !ok || facts.RetryAfter != 50*ms || time.Since(start) != 50*ms {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		time.Sleep(50 * ms)
		allow(t, l, 1, ratelimit.Result{OK: true, Next: 100 * ms, Reset: 300 * ms})
	})
}

func TestLimitStrings(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]ratelimit.Limit{
		"5/s, burst 5":      ratelimit.PerSecond(5),
		"5/m, burst 5":      ratelimit.PerMinute(5),
		"5/h, burst 5":      ratelimit.PerHour(5),
		"2/s, burst 2":      {Events: 2},
		"5/1m30s, burst 10": {Events: 5, Per: 90 * time.Second, Burst: 10},
	} {
		if got := l.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
