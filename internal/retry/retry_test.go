package retry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/internal/retry"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if !retry.Sleep(t.Context(), time.Hour) || time.Since(begun) != time.Hour {
			t.Errorf("slept for %v", time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun = time.Now()
		if retry.Sleep(ctx, time.Hour) || time.Since(begun) != time.Minute {
			t.Errorf("slept for %v although its context ended after a minute", time.Since(begun))
		}
		if retry.Sleep(ctx, 0) || !retry.Sleep(t.Context(), -1) {
			t.Error("no pause at all does not tell whether the context has ended")
		}
	})
}

// TestNap: what wakes it is taken, and says nothing of the context.
func TestNap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{}, 1)
		time.AfterFunc(time.Minute, func() { wake <- struct{}{} })
		begun := time.Now()
		if !retry.Nap(t.Context(), time.Hour, wake) || time.Since(begun) != time.Minute || len(wake) > 0 {
			t.Errorf("napped for %v, woken after a minute", time.Since(begun))
		}
		if !retry.Nap(t.Context(), time.Hour, wake) || time.Since(begun) != time.Hour+time.Minute {
			t.Errorf("napped until %v, woken by nothing", time.Since(begun))
		}
	})
}

// TestPeriod: one of those who come in a period is told that it is time.
func TestPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p retry.Period
		due := func(want bool) {
			t.Helper()
			if p.Due(time.Hour) != want {
				t.Errorf("due: %t, want %t", !want, want)
			}
		}
		due(true)
		due(false)
		time.Sleep(time.Hour - 1)
		due(false)
		time.Sleep(time.Nanosecond)
		due(true)
		p.Again()
		due(true)
		due(false)
	})
}

func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := retry.NewBackoff(time.Second, 5*time.Second)
		for range 2 {
			for i, want := range []time.Duration{1, 2, 4, 5, 5} {
				want *= time.Second
				begun := time.Now()
				b.Wait(t.Context())
				if got := time.Since(begun); got < want/2 || got >= want*3/2 {
					t.Errorf("pause %d took %v, want from half of %v to one and a half", i+1, got, want)
				}
			}
			b.Reset()
		}
	})
}

// Two processes that fail at once must not come back at once, again and again.
func TestPausesDiffer(t *testing.T) {
	a, b := retry.NewBackoff(time.Second, time.Hour), retry.NewBackoff(time.Second, time.Hour)
	for range 10 {
		if a.Next() != b.Next() {
			return
		}
	}
	t.Error("ten pauses are the same")
}

func TestJitter(t *testing.T) {
	for _, d := range []time.Duration{-1, 0, 1, time.Second} {
		if got := retry.Jitter(d); got < 0 || got > 0 && got >= d {
			t.Errorf("Jitter(%v) is %v", d, got)
		}
	}
}
