//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// TestSilentServerIsNotBusy: requests of one process that are in one another's way, while the
// server does not answer, say that it is unavailable, and not that the name is held.
func TestSilentServerIsNotBusy(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), nil)
	release(t, e, try(t, e, request("a")))
	pg.Freeze(t)
	defer pg.Thaw(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	req := request("a")
	req.Wait = true
	waits := make(chan error)
	const n = 3
	for range n {
		go func() { // ends with ctx
			_, err := e.Acquire(ctx, req)
			waits <- err
		}()
	}
	for ctx.Err() == nil {
		soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		_, err := e.Acquire(soon, request("a"))
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrHeld) { // it may end before it asks
			t.Errorf("a try while the server does not answer: %v", err)
		}
	}
	for range n {
		unavailable(t, "a wait", await(t, waits, "the end of a wait"))
	}
}

// TestTryBehindAWaitThatCannotConnect: a try does not wait until the server is back because
// another request of its process does.
func TestTryBehindAWaitThatCannotConnect(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), short)
	release(t, e, try(t, e, shortRequest("a")))
	pg.Stop(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req := shortRequest("a")
	req.Wait = true
	waited := make(chan error, 1)
	go func() { // ends with ctx
		_, err := e.Acquire(ctx, req)
		waited <- err
	}()
	for range 20 {
		tried := make(chan error, 1)
		go func() { // ends with ctx
			_, err := e.Acquire(ctx, shortRequest("a"))
			tried <- err
		}()
		unavailable(t, "a try", await(t, tried, "the answer to a try"))
	}
	cancel()
	unavailable(t, "a wait", await(t, waited, "the end of the wait"))
}

// TestTryBehindAWaitInAQuarantine: it says until when the server grants nothing, and not that
// the name is held.
func TestTryBehindAWaitInAQuarantine(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), &pglock.Config{MaxTTL: time.Minute})
	release(t, e, try(t, e, request("a")))
	pg.Kill(t)
	pg.Restart(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waited := queueUp(t, ctx, e, request("a"))
	for range 3 {
		_, err := e.Acquire(t.Context(), request("a"))
		unavailable(t, "a try", err)
		if !strings.Contains(err.Error(), "grants nothing until") {
			t.Errorf("a try in a quarantine: %v", err)
		}
	}
	cancel()
	unavailable(t, "a wait", await(t, waited, "the end of the wait").err)
}

func unavailable(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrHeld) {
		t.Errorf("%s while the server grants nothing: got %v, want ErrUnavailable and not ErrHeld", what, err)
	}
}
