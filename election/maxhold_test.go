package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/election"
	"github.com/fencelock/fencelock/memlock"
)

// TestMaxHoldEndsATerm: a leader whose term reaches the maximum hold stops, another candidate leads
// next, and the first one leads again after it. Work that ignores its context makes Check fail.
func TestMaxHoldEndsATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = time.Minute
		store := memlock.New(nil)
		locks := fencelock.New(store.Client(), nil).With(fencelock.Options{TTL: ttl, MaxHold: most})
		a := election.New(locks, name, nil)
		b := start(store, election.Config{})
		begun := time.Now()
		terms := make(chan int64, 2)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { // ends with ctx
			done <- a.Run(ctx, func(ctx context.Context) error {
				token, _ := fencelock.TokenFrom(ctx)
				terms <- token
				<-ctx.Done()
				if cause := context.Cause(ctx); len(terms) == 1 && !errors.Is(cause, fencelock.ErrMaxHold) {
					t.Errorf("the term ended with %v", cause)
				}
				return context.Cause(ctx)
			})
		}()
		synctest.Wait()
		other := b.run(func(context.Context) error {
			if took := time.Since(begun); took < most || took > most+time.Millisecond { // the shortest sleep of the timer of locks
				t.Errorf("the other candidate led after %v, want %v", took, most)
			}
			return nil
		})
		if err := <-other.done; err != nil {
			t.Error(err)
		}
		first, second := <-terms, <-terms
		if second <= first {
			t.Errorf("terms %d and %d", first, second)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}

// TestCheckOfATermPastItsMaximumHold: work that goes on after its term is reported.
func TestCheckOfATermPastItsMaximumHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New(nil)
		c := election.New(fencelock.New(store.Client(), nil).With(fencelock.Options{TTL: ttl, MaxHold: time.Minute}), name, &election.Config{ShutdownTimeout: -1})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { // ends with the work
			done <- c.Run(ctx, func(ctx context.Context) error {
				time.Sleep(2 * time.Minute)
				cancel()
				return nil
			})
		}()
		time.Sleep(time.Minute + time.Second)
		if err := c.Check(2 * time.Second); err != nil {
			t.Errorf("within the tolerance: %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := c.Check(2 * time.Second); !errors.Is(err, election.ErrStuck) || !errors.Is(err, fencelock.ErrMaxHold) {
			t.Errorf("after the tolerance: %v", err)
		}
		<-done
	})
}
