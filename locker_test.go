package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

const hour = time.Hour

// newLocks returns a Locker with one-hour leases and the engine below it.
func newLocks(cfg fencelock.Config) (*fencelock.Locker, *memlock.Engine) {
	engine := memlock.New(nil)
	return fencelock.New(engine, &cfg).With(fencelock.Options{TTL: hour}), engine
}

func acquire(t *testing.T, locks *fencelock.Locker, name string) *fencelock.Lock {
	t.Helper()
	lock, err := locks.Acquire(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func TestDoHoldsRenewsAndReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, engine := newLocks(fencelock.Config{})
		other := fencelock.New(engine.Client(), nil)
		err := locks.Do(t.Context(), "a", func(ctx context.Context) error {
			token, ok := fencelock.TokenFrom(ctx)
			if held, too := fencelock.HeldFor(ctx, "a"); !ok || !too || token <= 0 || held.Token != token {
				t.Errorf("token %d, of a %+v", token, held)
			}
			time.Sleep(100 * hour)
			if _, err := other.TryAcquire(ctx, "a"); !errors.Is(err, fencelock.ErrHeld) {
				t.Errorf("after a hundred leases: %v, want held", err)
			}
			return ctx.Err()
		})
		if err != nil {
			t.Fatal(err)
		}
		lock, err := other.TryAcquire(t.Context(), "a")
		if err != nil {
			t.Fatalf("not released: %v", err)
		}
		if err := lock.Release(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDoReturnsTheLossEvenIfTheWorkWentWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, engine := newLocks(fencelock.Config{})
		mine := errors.New("half done")
		for _, result := range []error{nil, mine} {
			err := locks.Do(t.Context(), "a", func(ctx context.Context) error {
				engine.Lose("a")
				<-ctx.Done()
				if cause := context.Cause(ctx); !errors.Is(cause, fencelock.ErrLost) {
					t.Errorf("cause %v, want lost", cause)
				}
				return result
			})
			if !errors.Is(err, fencelock.ErrLost) || result != nil && !errors.Is(err, result) {
				t.Errorf("Do returned %v, want the loss and %v", err, result)
			}
		}
	})
}

func TestDoRenewsUntilTheFunctionReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, engine := newLocks(fencelock.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		err := locks.Do(ctx, "a", func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), fencelock.ErrLost) {
				t.Error("the caller's cancel looks like a loss")
			}
			time.Sleep(10 * hour) // slow to stop
			if _, err := engine.Client().Acquire(context.Background(), driver.Request{Name: "a", TTL: hour}); !errors.Is(err, driver.ErrHeld) {
				t.Errorf("the lock was not kept while the function was still running: %v", err)
			}
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, fencelock.ErrLost) {
			t.Fatalf("Do returned %v", err)
		}
		lock, err := locks.TryAcquire(t.Context(), "a")
		if err != nil {
			t.Fatalf("the caller's cancel kept the lock from being released: %v", err)
		}
		_ = lock.Release()
	})
}

func TestDoReleasesAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, _ := newLocks(fencelock.Config{})
		func() {
			defer func() { _ = recover() }()
			_ = locks.Do(t.Context(), "a", func(context.Context) error { panic("boom") })
		}()
		lock, err := locks.TryAcquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		_ = lock.Release()
	})
}

func TestWaitLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, _ := newLocks(fencelock.Config{})
		held := acquire(t, locks, "a")
		defer held.Release()

		begun := time.Now()
		_, err := locks.With(fencelock.Options{Wait: time.Minute}).Acquire(t.Context(), "a")
		if !errors.Is(err, fencelock.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Minute {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		_, err = locks.Acquire(ctx, "a")
		if !errors.Is(err, fencelock.ErrHeld) || !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		var facts *fencelock.HeldError
		if _, err = locks.TryAcquire(t.Context(), "a"); !errors.As(err, &facts) || facts.PID == 0 || facts.Owner != held.Owner() {
			t.Errorf("%v has no facts", err)
		}
	})
}

func TestAcquiresContextDoesNotBoundTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, _ := newLocks(fencelock.Config{})
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
		lock, err := locks.Acquire(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(10 * hour)
		if err := errors.Join(lock.Err(), lock.Context().Err()); err != nil {
			t.Fatal(err)
		}
		if token, _ := fencelock.TokenFrom(lock.Context()); lock.Context().Value(key{}) != "kept" || token != lock.Token() {
			t.Error("the lock's context lost its values")
		}
		if err := lock.Release(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestReleaseTwiceAndAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, engine := newLocks(fencelock.Config{})
		lock := acquire(t, locks, "a")
		if err := lock.Release(); err != nil {
			t.Fatal(err)
		}
		if err := lock.Err(); !errors.Is(err, fencelock.ErrNotHeld) || errors.Is(err, fencelock.ErrLost) {
			t.Errorf("after a release: %v", err)
		}
		if err := lock.Release(); err != nil {
			t.Errorf("a second release: %v", err)
		}
		lost := acquire(t, locks, "a")
		engine.Lose("a")
		next := acquire(t, locks, "a")
		if err := lost.Release(); !errors.Is(err, fencelock.ErrNotHeld) || !errors.Is(err, fencelock.ErrLost) {
			t.Errorf("releasing a lost lock: %v", err)
		}
		if err := next.Err(); err != nil {
			t.Errorf("the late release ended its successor: %v", err)
		}
		_ = next.Release()
	})
}

// A silent partition: the context must end before the engine lets anyone in.
func TestLossIsSignalledBeforeAnyoneElseGetsIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, engine := newLocks(fencelock.Config{})
		lock := acquire(t, locks, "a")
		engine.Freeze()
		deadline := lock.Deadline()
		next := make(chan time.Time)
		go func() {
			other := fencelock.New(engine.Client(), nil)
			l, err := other.Acquire(t.Context(), "a")
			if err != nil {
				t.Error(err)
			}
			next <- time.Now()
			_ = l.Release()
		}()
		<-lock.Context().Done()
		ended := time.Now()
		granted := <-next
		engine.Thaw()
		if !ended.Before(granted) || ended.After(deadline) {
			t.Fatalf("ended %v before the grant and %v after the deadline", granted.Sub(ended), ended.Sub(deadline))
		}
		if want := hour/50 + 10*time.Millisecond; granted.Sub(ended) != want {
			t.Errorf("margin %v, want %v", granted.Sub(ended), want)
		}
		if cause := context.Cause(lock.Context()); !errors.Is(cause, fencelock.ErrLost) || !strings.Contains(cause.Error(), "deadline") {
			t.Errorf("cause %v", cause)
		}
		_ = lock.Release()
	})
}

func TestPassingFailuresAreRiddenOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, engine := newLocks(fencelock.Config{})
		lock := acquire(t, locks, "a")
		engine.Refuse(errors.New("connection reset"))
		time.Sleep(50 * time.Minute)
		if err := lock.Err(); err != nil {
			t.Fatalf("lost before the deadline: %v", err)
		}
		engine.Refuse(nil)
		time.Sleep(10 * hour)
		if err := lock.Err(); err != nil {
			t.Fatalf("not renewed after the failure was over: %v", err)
		}
		engine.Refuse(errors.New("connection reset"))
		<-lock.Context().Done()
		if cause := context.Cause(lock.Context()); !strings.Contains(cause.Error(), "connection reset") {
			t.Errorf("the engine's words are hidden: %v", cause)
		}
		engine.Refuse(nil)
		_ = lock.Release()
	})
}

func TestGraceEndsTheContextBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, engine := newLocks(fencelock.Config{})
		lock := acquire(t, locks.With(fencelock.Options{Grace: 10 * time.Minute}), "a")
		engine.Freeze()
		<-lock.Context().Done()
		if left := time.Until(lock.Deadline()); left != 10*time.Minute {
			t.Errorf("%v were left, want the grace", left)
		}
		engine.Thaw()
		_ = lock.Release()
	})
}

// With keeps each option that it is not told to change, and changes each that it is told.
func TestWithMerges(t *testing.T) {
	locks := fencelock.New(memlock.New(nil), nil)
	options := reflect.TypeFor[fencelock.Options]()
	for i := range options.NumField() {
		field := options.Field(i).Name
		was, is := some(t, field, 1), some(t, field, 2)
		l := locks.With(was)
		for what, c := range map[string]struct{ got, want fencelock.Options }{
			"set":     {l.Options(), was},
			"kept":    {l.With(fencelock.Options{}).Options(), was},
			"changed": {l.With(is).Options(), is},
			"dropped": {l.WithOnly(fencelock.Options{}).Options(), locks.Options()},
		} {
			got, want := reflect.ValueOf(c.got).Field(i), reflect.ValueOf(c.want).Field(i)
			if fmt.Sprint(got) != fmt.Sprint(want) { // functions have no other equality
				t.Errorf("%s is not %s: %v, want %v", field, what, got, want)
			}
		}
	}
}

// some returns Options with one field set, to the n-th value of its type.
func some(t *testing.T, field string, n int64) (o fencelock.Options) {
	t.Helper()
	switch v := reflect.ValueOf(&o).Elem().FieldByName(field); v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(n)
	case reflect.String:
		v.SetString(fmt.Sprint(n))
	case reflect.Func:
		calls := []func(fencelock.WaitInfo){func(fencelock.WaitInfo) { t.Log(1) }, func(fencelock.WaitInfo) { t.Log(2) }}
		v.Set(reflect.ValueOf(calls[n-1]))
	default:
		t.Fatalf("no value for %s", field)
	}
	return o
}

// WithOnly keeps nothing of the options that a Locker had before.
func TestWithOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, _ := newLocks(fencelock.Config{})
		seats := locks.With(fencelock.Options{Shared: true, Limit: 2, TTL: time.Minute, Wait: time.Second, Note: "seat"})
		alone := seats.WithOnly(fencelock.Options{})
		if got := alone.Options(); got.Shared || got.Limit != 0 || got.TTL != 30*time.Second || got.Wait != 0 || got.Note != "" {
			t.Errorf("%+v", got)
		}
		first := acquire(t, alone, "a")
		defer first.Release()
		if _, err := alone.TryAcquire(t.Context(), "a"); !errors.Is(err, fencelock.ErrHeld) {
			t.Errorf("a second exclusive holder: %v", err)
		}
		o := seats.Options()
		o.Limit = 3
		if got := seats.WithOnly(o).Options(); !got.Shared || got.Limit != 3 || got.TTL != time.Minute || got.Note != "seat" {
			t.Errorf("one option changed: %+v", got)
		}
	})
}

func TestTryDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, engine := newLocks(fencelock.Config{})
		ran, mine := 0, errors.New("mine")
		err := locks.TryDo(t.Context(), "a", func(ctx context.Context) error {
			ran++
			if _, ok := fencelock.TokenFrom(ctx); !ok {
				t.Error("no token")
			}
			again := locks.TryDo(ctx, "a", func(context.Context) error { ran++; return nil })
			if !errors.Is(again, fencelock.ErrHeld) {
				t.Errorf("while it is held: %v", again)
			}
			return mine
		})
		if ran != 1 || err != mine {
			t.Errorf("ran %d times, %v", ran, err)
		}
		err = locks.TryDo(t.Context(), "a", func(ctx context.Context) error {
			engine.Lose("a")
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, fencelock.ErrLost) {
			t.Errorf("lost: %v", err)
		}
	})
}

func TestBadInputIsRefusedBeforeAnything(t *testing.T) {
	locks := fencelock.New(memlock.New(nil), nil)
	for what, bad := range map[string]*fencelock.Locker{
		"negative wait":   locks.With(fencelock.Options{Wait: -1}),
		"negative TTL":    locks.With(fencelock.Options{TTL: -1}),
		"short TTL":       locks.With(fencelock.Options{TTL: time.Millisecond}),
		"grace too long":  locks.With(fencelock.Options{TTL: time.Second, Grace: time.Second}),
		"negative grace":  locks.With(fencelock.Options{Grace: -1}),
		"limit alone":     locks.With(fencelock.Options{Limit: 2}),
		"negative limit":  locks.With(fencelock.Options{Shared: true, Limit: -1}),
		"negative hold":   locks.With(fencelock.Options{MinHold: -1}),
		"negative margin": fencelock.New(memlock.New(nil), &fencelock.Config{Margin: -1}),
	} {
		if _, err := bad.TryAcquire(t.Context(), "a"); !errors.Is(err, fencelock.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
	for _, name := range []string{"", strings.Repeat("x", 513), "a\x00b", "\xff"} {
		if _, err := locks.Acquire(t.Context(), name); !errors.Is(err, fencelock.ErrInvalid) {
			t.Errorf("name %.10q: %v, want ErrInvalid", name, err)
		}
	}
	lock, err := locks.TryAcquire(t.Context(), "a")
	if err != nil {
		t.Fatalf("something was left locked: %v", err)
	}
	_ = lock.Release()
}

// TestWrongDurationsAreNamed: the error says which option is negative or too long.
func TestWrongDurationsAreNamed(t *testing.T) {
	for _, wrong := range []time.Duration{-time.Second, 100 * 366 * 24 * time.Hour} {
		for name, c := range map[string]struct {
			cfg  fencelock.Config
			opts fencelock.Options
		}{
			"TTL":             {opts: fencelock.Options{TTL: wrong}},
			"wait limit":      {opts: fencelock.Options{Wait: wrong}},
			"grace":           {opts: fencelock.Options{Grace: wrong}},
			"minimum hold":    {opts: fencelock.Options{MinHold: wrong}},
			"maximum hold":    {opts: fencelock.Options{MaxHold: wrong}},
			"margin":          {cfg: fencelock.Config{Margin: wrong}},
			"release timeout": {cfg: fencelock.Config{ReleaseTimeout: wrong}},
		} {
			locks, _ := newLocks(c.cfg)
			_, err := locks.With(c.opts).Acquire(t.Context(), "a")
			if !errors.Is(err, fencelock.ErrInvalid) || !strings.Contains(err.Error(), "the "+name+" "+wrong.String()) {
				t.Errorf("%s %v: %v", name, wrong, err)
			}
		}
	}
}

func TestErrIsNotInTheWayOfRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := fencelock.New(memlock.New(nil), nil).With(fencelock.Options{TTL: 10 * time.Second})
		lock := acquire(t, locks, "a")
		for range 10_000 {
			time.Sleep(10 * time.Millisecond)
			if err := lock.Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := lock.Release(); err != nil {
			t.Error(err)
		}
	})
}

// A context that has ended is its own error, and the engine is not asked.
func TestAContextThatHasEndedIsItsOwnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &scripted{Engine: memlock.New(nil)}
		engine.acquire = func(context.Context, driver.Request) (driver.Grant, error) {
			t.Error("the engine was asked")
			return driver.Grant{}, driver.ErrUnavailable
		}
		locks := fencelock.New(engine, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for what, ask := range map[string]func() error{
			"Acquire":       func() error { _, err := locks.Acquire(ctx, "a"); return err },
			"TryAcquire":    func() error { _, err := locks.TryAcquire(ctx, "a"); return err },
			"AcquireAll":    func() error { _, err := locks.AcquireAll(ctx, "a", "b"); return err },
			"TryAcquireAll": func() error { _, err := locks.TryAcquireAll(ctx, "a", "b"); return err },
			"Do":            func() error { return locks.Do(ctx, "a", func(context.Context) error { return nil }) },
		} {
			if err := ask(); err != context.Canceled {
				t.Errorf("%s: got %v", what, err)
			}
		}
	})
}

// A wait limit that is over before the engine has answered says nothing of the name.
func TestAWaitLimitTooShortForAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, engine := newLocks(fencelock.Config{})
		engine.Delay(time.Second)
		for _, limit := range []time.Duration{1, time.Millisecond} {
			_, err := locks.With(fencelock.Options{Wait: limit}).Acquire(t.Context(), "a")
			if !errors.Is(err, fencelock.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, fencelock.ErrHeld) {
				t.Errorf("after %v: %v", limit, err)
			}
		}
	})
}

// A grant that has lapsed each time it is looked at costs a pause, as one that cannot
// be confirmed does.
func TestAWaitWhoseGrantsLapsePauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		engine := &scripted{Engine: memlock.New(nil)}
		engine.acquire = func(context.Context, driver.Request) (driver.Grant, error) {
			if calls++; calls > 1000 {
				return driver.Grant{}, errors.New("asked without a pause")
			}
			return driver.Grant{Owner: "lapsed", Token: 1}, nil
		}
		locks := fencelock.New(engine, nil).With(fencelock.Options{Wait: time.Minute})
		for what, acquire := range map[string]func() error{
			"wait": func() error { _, err := locks.Acquire(t.Context(), "a"); return err },
			"try":  func() error { _, err := locks.TryAcquire(t.Context(), "a"); return err },
		} {
			if err := acquire(); !errors.Is(err, fencelock.ErrUnavailable) || errors.Is(err, fencelock.ErrNotHeld) {
				t.Errorf("%s: %v, want unavailable alone", what, err)
			}
		}
	})
}

// The limit of a wait holds for the confirmation of a grant too.
func TestAConfirmationTakesNoLongerThanTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memlock.New(nil)
		engine := &scripted{Engine: &deaf{Engine: inner}}
		engine.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			grant, err := inner.Acquire(ctx, req)
			grant.Sent = time.Time{}
			return grant, err
		}
		locks := fencelock.New(engine, nil).With(fencelock.Options{Wait: 5 * time.Millisecond})
		begun := time.Now()
		_, err := locks.Acquire(t.Context(), "a")
		if waited := time.Since(begun); waited != 5*time.Millisecond || !errors.Is(err, fencelock.ErrUnavailable) {
			t.Errorf("after %v: %v", waited, err)
		}
		free(t, inner, "a")
	})
}
