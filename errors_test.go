package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

func TestALossSaysOnceThatItIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, engine := newLocks(fencelock.Config{})
		lock := acquire(t, locks, "a")
		engine.Lose("a")
		want := fmt.Sprintf(`lock "a" with token %d was lost: the engine lost the data of "a"`, lock.Token())
		if got := fmt.Sprint(lock.Err()); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		_ = lock.Release()
	})
	three := &fencelock.LostError{Name: "a", Token: 1, Reason: errors.New("failed to connect:\n\t127.0.0.1: refused\n\t::1: refused")}
	if strings.ContainsAny(three.Error(), "\n\t") {
		t.Errorf("%q is more than a line", three.Error())
	}
}

func TestAnotherLimitIsExplained(t *testing.T) {
	locks := fencelock.New(memlock.New(nil), nil)
	lock := acquire(t, locks.With(fencelock.Options{Shared: true, Limit: 3}), "a")
	defer lock.Release()
	_, err := locks.With(fencelock.Options{Shared: true, Limit: 5}).TryAcquire(t.Context(), "a")
	if !errors.Is(err, fencelock.ErrInvalid) || !strings.Contains(err.Error(), "in use with a limit of 3, and this request asks for it with a limit of 5") {
		t.Errorf("got %v", err)
	}
}

// Times that would overflow are refused before anything is asked for.
func TestTimesNearTheLongestNumber(t *testing.T) {
	engine := &scripted{Engine: memlock.New(nil)}
	engine.acquire = func(context.Context, driver.Request) (driver.Grant, error) {
		t.Error("the engine was asked")
		return driver.Grant{}, driver.ErrUnavailable
	}
	for what, locks := range map[string]func(time.Duration) *fencelock.Locker{
		"Config.Margin": func(d time.Duration) *fencelock.Locker { return fencelock.New(engine, &fencelock.Config{Margin: d}) },
		"Config.ReleaseTimeout": func(d time.Duration) *fencelock.Locker {
			return fencelock.New(engine, &fencelock.Config{ReleaseTimeout: d})
		},
		"Options.TTL": func(d time.Duration) *fencelock.Locker {
			return fencelock.New(engine, nil).With(fencelock.Options{TTL: d})
		},
		"Options.Grace": func(d time.Duration) *fencelock.Locker {
			return fencelock.New(engine, nil).With(fencelock.Options{Grace: d})
		},
		"Options.Wait": func(d time.Duration) *fencelock.Locker {
			return fencelock.New(engine, nil).With(fencelock.Options{Wait: d})
		},
		"Options.MinHold": func(d time.Duration) *fencelock.Locker {
			return fencelock.New(engine, nil).With(fencelock.Options{MinHold: d})
		},
	} {
		for _, d := range []time.Duration{driver.MaxDuration + 1, 1 << 62, math.MaxInt64 - 1, math.MaxInt64} {
			for how, ask := range map[string]func() error{
				"TryAcquire": func() error { _, err := locks(d).TryAcquire(t.Context(), "a"); return err },
				"Acquire":    func() error { _, err := locks(d).Acquire(t.Context(), "a"); return err },
				"AcquireAll": func() error { _, err := locks(d).AcquireAll(t.Context(), "a"); return err },
			} {
				if err := ask(); !errors.Is(err, fencelock.ErrInvalid) {
					t.Errorf("%s with %s %d: %v, want ErrInvalid", how, what, d, err)
				}
			}
		}
	}
}

// The longest times that are allowed work.
func TestTimesOfTenYears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := fencelock.New(memlock.New(nil), &fencelock.Config{Margin: driver.MaxDuration / 4, ReleaseTimeout: driver.MaxDuration})
		lock, err := locks.With(fencelock.Options{
			TTL: driver.MaxDuration, Grace: driver.MaxDuration / 4, Wait: driver.MaxDuration, MinHold: driver.MaxDuration}).Acquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if left := time.Until(lock.Deadline()); lock.Err() != nil || left != driver.MaxDuration*3/4 {
			t.Errorf("at birth: %v, %v left", lock.Err(), left)
		}
		if err := lock.Release(); err != nil {
			t.Error(err)
		}
	})
}

// TestLossIsNoOutage: a program retries after ErrUnavailable, which must not match a lock that was
// lost while its function ran.
func TestLossIsNoOutage(t *testing.T) {
	t.Parallel()
	err := errors.Join(&fencelock.LostError{Name: "a", Token: 1, Reason: fmt.Errorf("deadline: %w", fencelock.ErrUnavailable)})
	if !errors.Is(err, fencelock.ErrLost) || errors.Is(err, fencelock.ErrUnavailable) {
		t.Errorf("%v: lost %t, unavailable %t", err, errors.Is(err, fencelock.ErrLost), errors.Is(err, fencelock.ErrUnavailable))
	}
}
