package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	return recordClient{e, ratelimit.OnRecords(e.Records())}
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
func (c recordClient) ResetRate(ctx context.Context, key string) error {
	return c.rates.ResetRate(ctx, key)
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

// vague is a record store whose clock is known to a second.
type vague struct{ driver.Records }

func (v vague) Clock(ctx context.Context) (earliest, latest time.Time, err error) {
	earliest, latest, err = v.Records.Clock(ctx)
	return earliest.Add(-time.Second), latest, err
}

// TestVagueClock: where the clock is not known exactly, no more is granted than the least
// time allows.
func TestVagueClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := ratelimit.New(ratelimit.OnRecords(vague{memlock.New(nil).Records()}), "test", ratelimit.Limit{Events: 1, Per: 10 * time.Second, Burst: 2}, nil)
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
		l := ratelimit.New(ratelimit.OnRecords(vague{memlock.New(nil).Records()}), "test", ratelimit.Limit{Events: 1, Per: 10 * time.Second}, nil)
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

// late is a record store whose swaps are late: something happens before each of the next few.
type late struct {
	driver.Records
	before []func()
}

func (l *late) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	if len(l.before) > 0 {
		f := l.before[0]
		l.before = l.before[1:]
		f()
	}
	return l.Records.Swap(ctx, key, value, version, ttl)
}

// TestTakeThatComesLate: between the look at an idle key and the write others have used it,
// and it is idle again. What is granted counts from the write, or more than a burst would
// be.
func TestTakeThatComesLate(t *testing.T) {
	t.Parallel()
	nothing := func() {}
	for step, before := range map[int][]func(){1: nil, 2: {nothing}} {
		synctest.Test(t, func(t *testing.T) {
			records := memlock.New(nil).Records()
			others := ratelimit.New(ratelimit.OnRecords(records), "test", tenth, nil)
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
			l := ratelimit.New(ratelimit.OnRecords(&late{records, append(before, used)}), "test", tenth, nil)
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
	version, err := engine.Records().Swap(t.Context(), "fencelock:rate:test:k", []byte("mine"), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	l := ratelimit.New(ratelimit.OnRecords(engine.Records()), "test", tenth, patient)
	if _, err := l.Allow(t.Context(), "k"); !errors.Is(err, driver.ErrConfig) {
		t.Error(err)
	}
	if rec, err := engine.Records().Get(t.Context(), "fencelock:rate:test:k"); err != nil || rec.Version != version {
		t.Errorf("%+v, %v", rec, err)
	}
}

// busy is a record store that is changed by others before each of some swaps.
type busy struct {
	driver.Records
	left  atomic.Int64
	swaps atomic.Int64
	takes time.Duration // how long each request takes
}

func (b *busy) Get(ctx context.Context, key string) (driver.Record, error) {
	if err := b.pass(ctx); err != nil {
		return driver.Record{}, err
	}
	return b.Records.Get(ctx, key)
}

func (b *busy) Swap(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	b.swaps.Add(1)
	if err := b.pass(ctx); err != nil {
		return "", err
	}
	if b.left.Add(-1) >= 0 {
		rec, err := b.Records.Get(ctx, key)
		if err == nil && rec.Version != "" {
			_, err = b.Records.Swap(ctx, key, rec.Value, rec.Version, time.Hour)
		}
		if err != nil {
			return "", err
		}
		if rec.Version == "" {
			return "", driver.ErrConflict
		}
	}
	return b.Records.Swap(ctx, key, value, version, ttl)
}

func (b *busy) pass(ctx context.Context) error {
	select {
	case <-time.After(b.takes):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: no answer: %w", driver.ErrUnavailable, ctx.Err())
	}
}

// TestConflictsAreNoOutage: a key that others change all the time is asked for until the caller's
// context ends, whatever the policy: nothing is granted that the record does not say.
func TestConflictsAreNoOutage(t *testing.T) {
	t.Parallel()
	for _, policy := range []ratelimit.Policy{ratelimit.FailClosed, ratelimit.FailOpen, ratelimit.FailLocal} {
		synctest.Test(t, func(t *testing.T) {
			b := &busy{Records: memlock.New(nil).Records(), takes: 50 * ms}
			l := ratelimit.New(ratelimit.OnRecords(b), "test", tenth, &ratelimit.Config{Down: policy, Local: tenth, Timeout: time.Second})
			b.left.Store(100) // ten seconds of conflicts
			got, err := l.Allow(t.Context(), "k")
			if err != nil || !got.OK || got.Err != nil || b.left.Load() >= 0 {
				t.Errorf("policy %d: %+v, %v; %d conflicts to come", policy, got, err, b.left.Load())
			}
			b.left.Store(1000)
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), 2500*ms)
				got, err := l.Allow(ctx, "k")
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrUnavailable) || got.OK {
					t.Errorf("policy %d, a caller whose context ends: %+v, %v", policy, got, err)
				}
			}
		})
	}
}

// TestTakesOfAProcessShareAWrite: many callers of a key make few changes, get no more than there
// is, and one that goes takes nothing along.
func TestTakesOfAProcessShareAWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &busy{Records: memlock.New(nil).Records(), takes: 50 * ms}
		l := ratelimit.New(ratelimit.OnRecords(b), "test", ratelimit.Limit{Events: 1, Per: time.Hour, Burst: 30}, nil)
		var granted, refused, gone atomic.Int64
		var callers sync.WaitGroup
		for i := range 100 {
			callers.Go(func() { // ends with its answer
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				if i%5 == 0 { // the first one leads, and goes
					ctx, cancel = context.WithTimeout(ctx, time.Duration(10+i)*ms)
					defer cancel()
				}
				switch got, err := l.Allow(ctx, "k"); {
				case errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, driver.ErrUnavailable):
					gone.Add(1)
				case err != nil:
					t.Errorf("caller %d: %v", i, err)
				case got.OK:
					granted.Add(1)
				default:
					refused.Add(1)
				}
			})
		}
		callers.Wait()
		if granted.Load() > 30 || granted.Load() < 10 || gone.Load() == 0 || granted.Load()+refused.Load() < 80 || b.swaps.Load() > 30 {
			t.Errorf("%d granted, %d refused, %d gone, in %d swaps", granted.Load(), refused.Load(), gone.Load(), b.swaps.Load())
		}
	})
}

// TestEngineThatHangs: an outage is one for all who wait, when each has waited for as long as an
// answer may take.
func TestEngineThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &busy{Records: memlock.New(nil).Records(), takes: time.Hour}
		l := ratelimit.New(ratelimit.OnRecords(b), "test", tenth, nil)
		var callers sync.WaitGroup
		for i := range 10 {
			callers.Go(func() { // ends with its answer
				time.Sleep(time.Duration(i) * 300 * ms)
				begun := time.Now()
				if _, err := l.Allow(t.Context(), "k"); !errors.Is(err, driver.ErrUnavailable) || time.Since(begun) > 1100*ms {
					t.Errorf("caller %d, after %v: %v", i, time.Since(begun), err)
				}
			})
		}
		callers.Wait()
	})
}
