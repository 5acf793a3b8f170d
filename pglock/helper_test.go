//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// engine opens an engine on the database of a URL, as a process of its own would.
func engine(t testing.TB, dsn string, cfg *pglock.Config) *pglock.Engine {
	t.Helper()
	pool := newPool(dsn)
	e := pglock.New(pool, cfg)
	t.Cleanup(func() {
		_ = e.Close()
		pool.Close()
	})
	return e
}

// request is one whose lease does not run out before the test has come to its end, however
// slow the machine.
func request(name string) driver.Request {
	return driver.Request{Name: name, TTL: 30 * time.Second, Identity: driver.Identity{Host: "here", PID: 7}}
}

// shared makes a request a shared one, with a limit if it is not 0.
func shared(req driver.Request, limit int) driver.Request {
	req.Mode, req.Limit = driver.Shared, limit
	return req
}

func leaseOf(req driver.Request, g driver.Grant) driver.Lease {
	return driver.Lease{Name: req.Name, Owner: g.Owner, Token: g.Token, Mode: req.Mode, TTL: req.TTL}
}

// try acquires at once, or fails the test.
func try(t testing.TB, e driver.Engine, req driver.Request) driver.Lease {
	t.Helper()
	g, err := e.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("acquire %q: %v", req.Name, err)
	}
	return leaseOf(req, g)
}

// refused fails the test unless a try is refused, and says by whom.
func refused(t testing.TB, e driver.Engine, req driver.Request) *driver.HeldError {
	t.Helper()
	g, err := e.Acquire(t.Context(), req)
	held, ok := errors.AsType[*driver.HeldError](err)
	if !ok {
		t.Fatalf("acquire %q: token %d, %v; want a *HeldError", req.Name, g.Token, err)
	}
	return held
}

func release(t testing.TB, e driver.Engine, l driver.Lease) {
	t.Helper()
	if err := e.Release(context.Background(), l); err != nil {
		t.Errorf("release %q: %v", l.Name, err)
	}
}

// letGo releases a lock whose lease may have run out, as a short one does on a busy machine.
func letGo(t testing.TB, e driver.Engine, l driver.Lease) {
	t.Helper()
	if err := e.Release(context.Background(), l); err != nil && !errors.Is(err, driver.ErrNotHeld) && !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("release %q: %v", l.Name, err)
	}
}

func renew(e driver.Engine, l driver.Lease) error {
	return e.Renew(context.Background(), []driver.Lease{l})[0]
}

// A wait is an acquire in a goroutine of its own.
type wait struct {
	engine driver.Engine
	lease  driver.Lease
	err    error
}

// queueUp starts a waiter and returns once it waits.
func queueUp(t testing.TB, ctx context.Context, e driver.Engine, req driver.Request) <-chan wait {
	t.Helper()
	joined, done := make(chan struct{}, 100), make(chan wait, 1)
	req.Wait = true
	req.OnWait = func(driver.WaitInfo) {
		select {
		case joined <- struct{}{}:
		default:
		}
	}
	go func() { // ends with ctx or the grant
		g, err := e.Acquire(ctx, req)
		done <- wait{e, leaseOf(req, g), err}
	}()
	await(t, joined, "a waiter that waits")
	return done
}

// granted receives the grant of a waiter.
func granted(t testing.TB, done <-chan wait) driver.Lease {
	t.Helper()
	w := await(t, done, "a grant")
	if w.err != nil {
		t.Fatal(w.err)
	}
	if err := renew(w.engine, w.lease); err != nil { // its lease is short until then
		t.Fatal(err)
	}
	return w.lease
}

// await receives from c, or fails the test.
func await[T any](t testing.TB, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("nothing: %s", what)
	}
	return v
}

// eventually fails the test unless ok becomes true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still not: %s", what)
		}
	}
}

// What the database of a query has of the server's lists of sessions and locks: other tests may use
// the server too.
const (
	activityHere = "(SELECT * FROM pg_stat_activity WHERE datname = current_database()) AS pg_stat_activity"
	locksHere    = "(SELECT * FROM pg_locks WHERE pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())) AS pg_locks"
)

// backends returns the server processes of engines that a condition on
// pg_stat_activity chooses, as one text.
func backends(t testing.TB, pg *pgtest.Postgres, condition string) string {
	t.Helper()
	return pg.Query(t, "SELECT count(*) FROM "+activityHere+" WHERE application_name = 'fencelock' AND "+condition)
}

// holder returns the server process that holds a name.
func holder(t testing.TB, pg *pgtest.Postgres, name string) uint32 {
	t.Helper()
	var pid uint32
	conn := pg.Connect(t)
	err := conn.QueryRow(t.Context(), `SELECT pid FROM `+locksHere+` WHERE locktype = 'advisory' AND objsubid = 1 AND granted
		AND (classid::bigint << 32 | objid::bigint) = hashtextextended($1, 0)`, name).Scan(&pid)
	if err != nil {
		t.Fatalf("who holds %q: %v", name, err)
	}
	return pid
}

func median(ds []time.Duration) time.Duration {
	ds = slices.Sorted(slices.Values(ds))
	return ds[len(ds)/2]
}
