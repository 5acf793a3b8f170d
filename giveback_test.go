package fencelock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// A caller whose time is over does not wait for the releases of an engine that has fallen
// silent, and what it had is given back all the same.
func TestASetIsGivenBackInTheBackground(t *testing.T) {
	inBubble(t, func(t *testing.T, locks *fencelock.Locker, engine *memlock.Engine) {
		taken, err := fencelock.New(engine.Client(), nil).Acquire(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		time.AfterFunc(time.Second, engine.Hang)
		begun := time.Now()
		_, err = locks.AcquireAll(ctx, "a", "b")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's error", err)
		}
		if took := time.Since(begun); took > 2*time.Second+fencelock.ReleaseWait {
			t.Errorf("AcquireAll returned after %v, and its context ended after 2s", took)
		}
		engine.Resume()
		synctest.Wait()
		time.Sleep(time.Second) // the next try of the release is at hand
		free(t, engine, "a")
		if err := taken.Release(); err != nil {
			t.Error(err)
		}
	})
}

// As long as the engine answers, a set that is not acquired leaves nothing locked.
func TestASetIsGivenBackBeforeItsErrorIsReturned(t *testing.T) {
	inBubble(t, func(t *testing.T, locks *fencelock.Locker, engine *memlock.Engine) {
		if _, err := fencelock.New(engine.Client(), nil).Acquire(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := locks.AcquireAll(ctx, "a", "b"); !errors.Is(err, fencelock.ErrHeld) {
			t.Errorf("got %v, want ErrHeld", err)
		}
		free(t, engine, "a")
	})
}

// unconfirmed is an engine that grants at an unknown time, and answers nothing else.
type unconfirmed struct {
	driver.Engine
	released chan error
}

func (unconfirmed) Acquire(context.Context, driver.Request) (driver.Grant, error) {
	return driver.Grant{Owner: "owner", Token: 1, Floor: 1}, nil
}

func (unconfirmed) Renew(ctx context.Context, _ []driver.Lease) []error {
	<-ctx.Done()
	return []error{ctx.Err()}
}

func (e unconfirmed) Release(ctx context.Context, _ driver.Lease) error {
	<-ctx.Done()
	e.released <- ctx.Err()
	return ctx.Err()
}

// A grant that nobody could confirm is given back in the background as well.
func TestAGrantIsGivenBackInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := unconfirmed{memlock.New(nil), make(chan error, 1)}
		locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: hour})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		begun := time.Now()
		_, err := locks.Acquire(ctx, "a")
		if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took > 2*time.Second+fencelock.ReleaseWait {
			t.Errorf("got %v after %v, want the context's error after little more than 2s", err, took)
		}
		<-engine.released // with the release timeout, or the bubble would not end
	})
}
