package ratelimit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/ratelimit"
)

// recordWorld is a store in memory whose rates are records.
type recordWorld struct{ store *memlock.Engine }

func (w recordWorld) Restart(testing.TB) { w.store.Restart() }
func (w recordWorld) Client(testing.TB) drivertest.Client {
	e := w.store.Client()
	return recordClient{e, ratelimit.OnRegister(e.Register())}
}

type recordClient struct {
	*memlock.Engine
	rates driver.RateLimiter
}

func (c recordClient) Kill(testing.TB)   { c.Engine.Kill() }
func (c recordClient) Freeze(testing.TB) { c.Engine.Freeze() }
func (c recordClient) Thaw(testing.TB)   { c.Engine.Thaw() }
func (c recordClient) TakeRate(ctx context.Context, take driver.RateTake) (driver.RateTaken, error) {
	return c.rates.TakeRate(ctx, take)
}
func (c recordClient) ReturnRate(ctx context.Context, take driver.RateTake, taken driver.RateTaken) error {
	return c.rates.ReturnRate(ctx, take, taken)
}

// TestExamOnRecords: rates that are records are rates.
func TestExamOnRecords(t *testing.T) {
	t.Parallel()
	asked := 0
	for _, c := range drivertest.Cases() {
		if !strings.HasPrefix(c.Name, "rate") {
			continue
		}
		asked++
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.Run(t, drivertest.Suite{World: func(testing.TB) drivertest.World { return recordWorld{memlock.New(nil)} }, Bubble: true})
			})
		})
	}
	if asked != 2 {
		t.Errorf("%d cases about rates", asked)
	}
}

// vague is a register whose clock is known to a second.
type vague struct{ driver.Register }

func (v vague) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	earliest, latest, err = v.Register.Clock(ctx)
	return earliest.Add(-time.Second), latest, err
}

// TestVagueClock: where the clock is not known exactly, no more is granted than the least
// time allows.
func TestVagueClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := ratelimit.New(ratelimit.OnRegister(vague{memlock.New(nil).Register()}), "test", ratelimit.Limit{Events: 1, Per: 10 * time.Second, Burst: 2}, nil)
		for _, c := range []struct {
			after time.Duration
			want  bool
		}{{0, true}, {0, true}, {10 * time.Second, false}, {time.Second, true}, {10 * time.Second, false}, {999 * ms, false}, {ms, true}} {
			time.Sleep(c.after)
			if got, err := l.Allow(t.Context(), "k"); err != nil || got.OK != c.want {
				t.Errorf("after %v: %+v, %v", c.after, got, err)
			}
		}
	})
}

// TestVagueClockThatIsAskedOften: the time between two refusals counts, however short it is
// beside what is not known of the clock.
func TestVagueClockThatIsAskedOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := ratelimit.New(ratelimit.OnRegister(vague{memlock.New(nil).Register()}), "test", ratelimit.Limit{Events: 1, Per: 10 * time.Second}, nil)
		var granted []time.Duration
		for begun := time.Now(); time.Since(begun) <= 25*time.Second; time.Sleep(100 * ms) {
			if got, err := l.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			} else if got.OK {
				granted = append(granted, time.Since(begun))
			}
		}
		if want := []time.Duration{0, 10 * time.Second, 20 * time.Second}; !slices.Equal(granted, want) {
			t.Errorf("granted after %v, want %v", granted, want)
		}
	})
}

// late is a register whose swaps are late: something happens before each of the next few.
type late struct {
	driver.Register
	before []func()
}

func (l *late) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if len(l.before) > 0 {
		f := l.before[0]
		l.before = l.before[1:]
		f()
	}
	return l.Register.Swap(ctx, key, value, version, ttl)
}

// TestTakeThatComesLate: between the look at an idle key and the write others have used it,
// and it is idle again. What is granted counts from the write, or more than a burst would
// be.
func TestTakeThatComesLate(t *testing.T) {
	t.Parallel()
	nothing := func() {}
	for step, before := range map[int][]func(){1: nil, 2: {nothing}} {
		synctest.Test(t, func(t *testing.T) {
			register := memlock.New(nil).Register()
			others := ratelimit.New(ratelimit.OnRegister(register), "test", tenth, nil)
			allow := func(l *ratelimit.Limiter, n int) bool {
				t.Helper()
				got, err := l.AllowN(t.Context(), "k", n)
				if err != nil {
					t.Fatal(err)
				}
				return got.OK
			}
			used := func() {
				if !allow(others, 3) {
					t.Error("the burst of an idle key was refused")
				}
				time.Sleep(300 * ms)
			}
			l := ratelimit.New(ratelimit.OnRegister(&late{register, append(before, used)}), "test", tenth, nil)
			if !allow(l, 1) {
				t.Errorf("late at write %d: refused", step)
			}
			if allow(others, 3) {
				t.Errorf("late at write %d: a burst was granted beside the late one", step)
			}
			if !allow(others, 2) {
				t.Errorf("late at write %d: the rest of the burst was refused", step)
			}
		})
	}
}

// TestForeignRecord: a record that is no rate is an error, and stays.
func TestForeignRecord(t *testing.T) {
	t.Parallel()
	engine := memlock.New(nil)
	version, err := engine.Register().Swap(t.Context(), "fencelock:rate:test:k", []byte("mine"), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	l := ratelimit.New(ratelimit.OnRegister(engine.Register()), "test", tenth, patient)
	if _, err := l.Allow(t.Context(), "k"); !errors.Is(err, driver.ErrConfig) {
		t.Error(err)
	}
	if rec, err := engine.Register().Get(t.Context(), "fencelock:rate:test:k"); err != nil || rec.Version != version {
		t.Errorf("%+v, %v", rec, err)
	}
}
