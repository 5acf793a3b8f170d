//go:build unix

package pglock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/enginetest"
	"github.com/jackc/pgx/v5"
)

// gate is the advisory lock at which a test stops the server.
const gate = 4711

// stopAt makes the server stop at the gate whenever an engine has made a change to a table,
// before it commits.
func stopAt(t testing.TB, pg *enginetest.Postgres, table, change string) {
	t.Helper()
	pg.Exec(t, `CREATE OR REPLACE FUNCTION public.gate() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_advisory_xact_lock_shared(0, `+fmt.Sprint(gate)+`); RETURN NULL; END $$`,
		"CREATE TRIGGER gate AFTER "+change+" ON fencelock."+table+" FOR EACH STATEMENT EXECUTE FUNCTION public.gate()")
}

// shut closes the gate until open is called.
func shut(t testing.TB, conn *pgx.Conn) (open func()) {
	t.Helper()
	if _, err := conn.Exec(context.Background(), "SELECT pg_advisory_lock(0, $1)", gate); err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := conn.Exec(context.Background(), "SELECT pg_advisory_unlock(0, $1)", gate); err != nil {
			t.Error(err)
		}
	}
}

// stopped waits until a server process stands at the gate, and returns it.
func stopped(t testing.TB, pg *enginetest.Postgres) uint32 {
	t.Helper()
	var pid uint32
	conn := pg.Connect(t)
	eventually(t, "the server stands at the gate", func() bool {
		err := conn.QueryRow(t.Context(), `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2
			AND objid = $1 AND NOT granted`, gate).Scan(&pid)
		return err == nil
	})
	return pid
}

// TestSharedReleaseThatFailsAfterItsUnlock: the last shared holder of a process leaves, the
// server unlocks, and ends the transaction before it commits. Whoever comes meanwhile in the
// same process keeps the lock that it took.
func TestSharedReleaseThatFailsAfterItsUnlock(t *testing.T) {
	t.Parallel()
	pg := enginetest.StartPostgres(t)
	e, other := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	req := shared(request("a"), 0)
	req.TTL = 30 * time.Second
	first := try(t, e, req)
	stopAt(t, pg, "sharer", "DELETE")
	conn := pg.Connect(t)
	for range 5 {
		open := shut(t, conn)
		released, came := make(chan error, 1), make(chan wait, 1)
		go func() { released <- e.Release(context.Background(), first) }() // ends with the release
		backend := stopped(t, pg)
		go func() { // ends with the grant
			g, err := e.Acquire(context.Background(), req)
			came <- wait{e, leaseOf(req, g), err}
		}()
		time.Sleep(20 * time.Millisecond) // the request may be on its way then; if not, the test shows less
		pg.Exec(t, fmt.Sprintf("SELECT pg_cancel_backend(%d)", backend))
		if err := await(t, released, "the end of the release"); err != nil {
			t.Error(err)
		}
		w := await(t, came, "the next shared holder")
		if w.err != nil {
			t.Fatal(w.err)
		}
		open()
		if got := pg.Query(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1"); got != "1" {
			t.Fatalf("the server has %s locks of a name with one holder", got)
		}
		if g, err := other.Acquire(t.Context(), request("a")); err == nil {
			t.Fatalf("an exclusive holder got in beside a shared one: token %d", g.Token)
		}
		first = w.lease
	}
	release(t, e, first)
	g, err := other.Acquire(t.Context(), driver.Request{Name: "a", TTL: req.TTL, Wait: true})
	if err != nil {
		t.Fatal(err)
	}
	release(t, other, leaseOf(req, g))
}

// TestWithdrawnSharedGrantThatCannotLeave: a shared request that has come to nothing leaves no
// lock behind, although the server does not let it delete its row.
func TestWithdrawnSharedGrantThatCannotLeave(t *testing.T) {
	t.Parallel()
	pg := enginetest.StartPostgres(t)
	e := engine(t, pg.DSN(), nil)
	req := shared(request("a"), 0)
	req.TTL = 10 * time.Second
	keeps := req
	keeps.Name = "b"
	l := try(t, e, keeps) // so that the session goes on
	pg.Exec(t, `CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END'`,
		"CREATE TRIGGER refuse BEFORE DELETE ON fencelock.sharer FOR EACH STATEMENT EXECUTE FUNCTION public.refuse()",
		"CREATE TRIGGER refuse BEFORE INSERT ON fencelock.minimum FOR EACH STATEMENT EXECUTE FUNCTION public.refuse()")
	req.AtLeast = time.Second
	if _, err := e.Acquire(t.Context(), req); err == nil {
		t.Fatal("a minimum hold that could not be written down was granted")
	}
	eventually(t, "the server has no lock of the name", func() bool {
		return pg.Query(t, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
			AND (classid::bigint << 32 | objid::bigint) = hashtextextended('a', 0)`) == "0"
	})
	if err := renew(e, l); err != nil {
		t.Error(err)
	}
}
