package inspect_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/inspect"
	"github.com/fencelock/fencelock/memlock"
)

// slow is an engine whose renewals take a while.
type slow struct {
	driver.Engine
	delay time.Duration
}

func (e slow) Renew(ctx context.Context, leases []driver.Lease) []error {
	time.Sleep(e.delay)
	return e.Engine.Renew(ctx, leases)
}

func run(e driver.Engine, ttl time.Duration) []driver.Finding {
	t := inspect.Trial{Engine: e, Name: inspect.NewName(), TTL: ttl, Denied: func(error) bool { return false }, Grant: "all rights"}
	f, _ := t.Run(context.Background()) // which does not end
	return f
}

func TestLatency(t *testing.T) {
	t.Parallel()
	for delay, want := range map[time.Duration]driver.Severity{0: driver.Good, 900 * time.Millisecond: driver.Good, 1100 * time.Millisecond: driver.Broken} {
		synctest.Test(t, func(t *testing.T) {
			if f := run(slow{memlock.New(nil), delay}, 6*time.Second)[1]; f.Check != "latency" || f.Severity != want || (want == driver.Good) != (f.Fix == "") {
				t.Errorf("renewals of %v: %+v", delay, f)
			}
		})
	}
}

// silent is an engine that tells no holder of a break, and lets nobody wait.
type silent struct{ *memlock.Engine }

func (e silent) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.OnLost = nil
	if req.Wait {
		return driver.Grant{}, errors.New("no right to wait")
	}
	return e.Engine.Acquire(ctx, req)
}

// TestParts: each part that fails is named, and nothing is left.
func TestParts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := silent{memlock.New(nil)}
		begun := time.Now()
		f := run(e, time.Minute)[2]
		if f.Check != "rights" || f.Severity != driver.Broken || f.Fix != "all rights" ||
			!strings.Contains(f.Observed, "waiting: no right to wait; break: the holder was not notified") {
			t.Errorf("found %+v", f)
		}
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		if left, err := e.List(t.Context(), driver.Query{}); err != nil || len(left) > 0 {
			t.Errorf("left: %+v, %v", left, err)
		}
	})
}

// TestEnded: what is seen after the end of a context is not told.
func TestEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // in the middle of the parts
		defer cancel()
		trial := inspect.Trial{Engine: silent{memlock.New(nil)}, Name: inspect.NewName(), TTL: time.Minute, Denied: func(error) bool { return false }}
		if _, err := trial.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestClock(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		off, doubt time.Duration
		want       driver.Severity
		says       string
	}{
		{0, time.Millisecond, driver.Good, "give or take 1ms"},
		{3 * time.Second, 0, driver.Warning, "ahead by 3s"},
		{-3 * time.Second, 0, driver.Warning, "behind by 3s"},
		{3 * time.Second, 3 * time.Second, driver.Good, "give or take 3s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			clock, err := inspect.ReadClock(func() (time.Time, time.Time, error) {
				time.Sleep(c.doubt)
				at := time.Now().Add(c.off)
				time.Sleep(c.doubt)
				return at, at, nil
			})
			if f := clock.Judge(); err != nil || f.Severity != c.want || !strings.Contains(f.Observed, c.says) {
				t.Errorf("%v off: %+v, %v", c.off, f, err)
			}
		})
	}
}

func TestTogether(t *testing.T) {
	t.Parallel()
	good := func(check, saw string) driver.Finding { return inspect.Passed(check, saw) }
	bad := func(check, saw string) driver.Finding {
		return inspect.Found(check, driver.Broken, saw, "means", "do")
	}
	got := inspect.Together([]string{"a", "b", "c"}, [][]driver.Finding{
		{good("x", "1"), bad("y", "1"), good("z", "1")},
		{good("x", "2"), bad("y", "1"), good("z", "1")},
		{good("x", "3"), bad("y", "2"), bad("z", "1")},
	})
	want := []driver.Finding{good("x", "1 on a, and good on 2 more"), bad("y", "a, b: 1"), bad("y", "c: 2"), bad("z", "c: 1")}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestWholeSeconds: a clock that shows whole seconds is not taken for a wrong one, and a wrong one is
// found.
func TestWholeSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(900 * time.Millisecond) // the bubble begins with a full second
		for ahead, want := range map[time.Duration]driver.Severity{0: driver.Good, 5 * time.Second: driver.Warning, -5 * time.Second: driver.Warning} {
			c, err := inspect.ReadClock(func() (earliest, latest time.Time, err error) {
				now := time.Now().Add(ahead).Truncate(time.Second)
				return now, now.Add(time.Second), nil
			})
			if f := c.Judge(); err != nil || f.Severity != want {
				t.Errorf("%v ahead: %+v, %v", ahead, f, err)
			}
		}
	})
}
