//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
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
	for said := 0; said < 3; { // on a busy machine some tries get no answer
		_, err := e.Acquire(t.Context(), request("a"))
		unavailable(t, "a try", err)
		if strings.Contains(err.Error(), "grants nothing until") {
			said++
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

// silentLimit is for how long requests may wait on a connection that has become silent, by a
// Timeout of three seconds. It takes about four seconds on a machine that has time.
const silentLimit = 20 * time.Second

// TestSilentSession: the connection of uncontended locks becomes silent. Requests that were sent
// on it are made on another one soon, also for a name whose request was given up there. What it
// holds stays held, and when it is back nothing of the requests that it had is left.
func TestSilentSession(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	p, dsn := throughProxy(t, pg)
	e := engine(t, dsn, &pglock.Config{Timeout: 3 * time.Second})
	kept := try(t, e, request("kept"))
	for _, l := range p.Links() {
		l.Stall(faults.Both)
	}
	begun := time.Now()
	brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := e.Acquire(brief, request("given up")); err == nil {
		t.Fatal("a silent server has granted a lock")
	}
	soon, cancel := context.WithDeadline(t.Context(), begun.Add(silentLimit))
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex // guards leases
	var leases []driver.Lease
	had := func(req driver.Request, g driver.Grant, err error) {
		mu.Lock()
		defer mu.Unlock()
		if t.Logf("%q after %v", req.Name, time.Since(begun)); err != nil {
			t.Errorf("%q beside a silent connection: %v", req.Name, err)
			return
		}
		leases = append(leases, leaseOf(req, g))
	}
	waiting := request("waiting")
	waiting.Wait = true
	for _, req := range []driver.Request{request("tried"), waiting, shared(request("shared"), 0)} {
		all.Go(func() { // ends with soon
			g, err := e.Acquire(soon, req)
			for soon.Err() == nil && errors.Is(err, driver.ErrUnavailable) { // on a busy machine, other connections take longer than Timeout
				g, err = e.Acquire(soon, req)
			}
			had(req, g, err)
		})
	}
	all.Go(func() { // ends with soon
		req := request("given up")
		req.Wait = true
		g, err := e.Acquire(soon, req)
		had(req, g, err)
	})
	all.Wait()
	p.Resume()
	eventually(t, "the lock on the connection that is back is renewed", func() bool { return renew(e, kept) == nil })
	other := engine(t, pg.DSN(), nil)
	for _, l := range leases {
		release(t, e, l)
		eventually(t, l.Name+" is free", func() bool {
			_, err := other.Acquire(t.Context(), request(l.Name))
			return err == nil
		})
	}
}

// TestGrantOnASilentSession: the server grants a try, and its answer does not arrive. The try says
// that the server is unavailable, not that its own process holds the name, and when the
// connection is back, the name is free.
func TestGrantOnASilentSession(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: a grant stays unread in a frozen waiter", verdict.Safe)
	pg := pgtest.Database(t)
	p, dsn := throughProxy(t, pg)
	e := engine(t, dsn, &pglock.Config{Timeout: 3 * time.Second})
	kept := try(t, e, request("kept"))
	for _, l := range p.Links() {
		l.Stall(faults.ToClient)
	}
	begun := time.Now()
	_, err := e.Acquire(t.Context(), request("x"))
	unavailable(t, "a try whose grant does not arrive", err)
	if took := time.Since(begun); took > silentLimit {
		t.Errorf("the try took %v", took)
	}
	p.Resume()
	other := engine(t, pg.DSN(), nil)
	eventually(t, "the name is free", func() bool {
		_, err := other.Acquire(t.Context(), request("x"))
		return err == nil
	})
	eventually(t, "the lock on the connection that is back is renewed", func() bool { return renew(e, kept) == nil })
}
