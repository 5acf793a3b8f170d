//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/pglock"
)

// TestSharedReleaseThatFailsAfterItsUnlock: the last shared holder of a process leaves, the
// server unlocks, and ends the transaction before it commits. Whoever comes meanwhile in the
// same process keeps the lock that it took.
func TestSharedReleaseThatFailsAfterItsUnlock(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: an answer is lost", verdict.Safe)
	pg := pgtest.Database(t)
	e, other := engine(t, pg.DSN(), patient), engine(t, pg.DSN(), patient)
	req := shared(long("a"), 0)
	req.TTL = 20 * time.Second // a lock that stays behind is free by then
	first := try(t, e, req)
	stopAt(t, pg, "sharer", "AFTER DELETE")
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
		if got := pg.Query(t, "SELECT count(*) FROM "+locksHere+" WHERE locktype = 'advisory' AND objsubid = 1"); got != "1" {
			t.Fatalf("the server has %s locks of a name with one holder", got)
		}
		if g, err := other.Acquire(t.Context(), request("a")); err == nil {
			t.Fatalf("an exclusive holder got in beside a shared one: token %d", g.Token)
		}
		first = w.lease
	}
	release(t, e, first)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	g, err := other.Acquire(ctx, driver.Request{Name: "a", TTL: req.TTL, Wait: true})
	if err != nil {
		t.Fatal(err)
	}
	release(t, other, leaseOf(req, g))
}

// TestReleaseThatDeletesItsRowLater: a shared holder releases, but the server refuses to delete its
// row for a while. A waiter is granted soon after the row is deleted, not after the lease.
func TestReleaseThatDeletesItsRowLater(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e, other := engine(t, pg.DSN(), patient), engine(t, pg.DSN(), patient)
	keeps := try(t, e, long("keeps the session"))
	req := shared(long("a"), 0)
	first := try(t, e, req)
	pg.Exec(t, `CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END'`,
		"CREATE TRIGGER refuse BEFORE DELETE ON fencelock.sharer FOR EACH STATEMENT EXECUTE FUNCTION public.refuse()")
	release(t, e, first)
	waiter := queueUp(t, t.Context(), other, long("a"))
	time.Sleep(100 * time.Millisecond) // it may have seen the row by then; if not, the test shows less
	pg.Exec(t, "DROP TRIGGER refuse ON fencelock.sharer")
	release(t, other, granted(t, waiter))
	release(t, e, keeps)
}

// TestWaiterOfARowThatIsDeletedLater: a release cannot clear its row at first. When it does, the
// waiter is notified.
func TestWaiterOfARowThatIsDeletedLater(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e, other := engine(t, pg.DSN(), patient), engine(t, pg.DSN(), patient)
	other.LookAtRowsEvery(time.Hour)
	keeps := try(t, e, long("keeps the session"))
	first := try(t, e, long("a"))
	pg.Exec(t, `CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END'`,
		"CREATE TRIGGER refuse BEFORE UPDATE ON fencelock.held FOR EACH ROW WHEN (new.owner IS NULL AND new.name = 'a') EXECUTE FUNCTION public.refuse()")
	release(t, e, first)
	waiter := queueUp(t, t.Context(), other, long("a"))
	eventually(t, "the waiter has found the row", func() bool {
		return pg.Query(t, "SELECT count(*) FROM fencelock.held WHERE name = 'a' AND seen IS NOT NULL") == "1"
	})
	pg.Exec(t, "DROP TRIGGER refuse ON fencelock.held")
	release(t, other, granted(t, waiter))
	release(t, e, keeps)
}

// TestWithdrawnSharedGrantThatCannotLeave: a shared request that has come to nothing leaves no
// lock behind, although the server does not let it delete its row.
func TestWithdrawnSharedGrantThatCannotLeave(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e := engine(t, pg.DSN(), nil)
	req := shared(request("a"), 0)
	req.TTL = 10 * time.Second
	keeps := req
	keeps.Name = "b"
	l := try(t, e, keeps) // so that the session goes on
	pg.Exec(t, `CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END'`,
		"CREATE TRIGGER refuse BEFORE DELETE ON fencelock.sharer FOR EACH STATEMENT EXECUTE FUNCTION public.refuse()",
		"CREATE TRIGGER refuse BEFORE INSERT ON fencelock.minimum FOR EACH STATEMENT EXECUTE FUNCTION public.refuse()")
	req.MinHold = time.Second
	if _, err := e.Acquire(t.Context(), req); err == nil {
		t.Fatal("a minimum hold that could not be written down was granted")
	}
	eventually(t, "the server has no lock of the name", func() bool {
		return pg.Query(t, `SELECT count(*) FROM `+locksHere+` WHERE locktype = 'advisory' AND objsubid = 1
			AND (classid::bigint << 32 | objid::bigint) = hashtextextended('a', 0)`) == "0"
	})
	if err := renew(e, l); err != nil {
		t.Error(err)
	}
}

// TestAGrantGivenBackLeavesNoMinimumHold: a request whose context ends while its minimum hold is
// being written down leaves the name open, though the server may write that later.
func TestAGrantGivenBackLeavesNoMinimumHold(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e := engine(t, pg.DSN(), patient)
	req := long("name")
	req.MinHold = time.Millisecond
	release(t, e, try(t, e, req))
	conn := pg.Connect(t)
	mustExec(t, conn, "BEGIN")
	mustExec(t, conn, "SELECT FROM fencelock.minimum FOR UPDATE")
	req.MinHold, req.Wait = 20*time.Second, true
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan error, 1)
	go func() { // ends when the request has come to the row, or with the test
		for backends(t, pg, "wait_event_type = 'Lock'") == "0" && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
		_, err := conn.Exec(t.Context(), "COMMIT")
		opened <- err
	}()
	if _, err := e.Acquire(ctx, req); !errors.Is(err, context.Canceled) {
		t.Fatalf("while somebody has the row: %v", err)
	}
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	req.MinHold = 0
	ctx, cancel = context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	l, err := e.Acquire(ctx, req)
	if err != nil {
		t.Fatalf("the name is closed, and nobody has held it: %v", err)
	}
	release(t, e, leaseOf(req, l))
}

// interrupt cancels the statement of an engine that waits for a table.
func interrupt(t *testing.T, pg *pgtest.Postgres) {
	t.Helper()
	eventually(t, "a statement waits for a table, and is cancelled", func() bool {
		return pg.Query(t, `SELECT count(pg_cancel_backend(pid)) FROM `+activityHere+`
			WHERE application_name = 'fencelock' AND wait_event = 'relation'`) != "0"
	})
}

// TestSeatOfAReleaseThatIsInterrupted: while nobody can write to the table, a holder leaves. Its
// seat is free when that has passed, though its process goes on.
func TestSeatOfAReleaseThatIsInterrupted(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e, other := engine(t, pg.DSN(), patient), engine(t, pg.DSN(), patient)
	keeps := try(t, e, long("keeps the session"))
	req := shared(long("a"), 1)
	l := try(t, e, req)
	refused(t, other, req)
	conn := pg.Connect(t)
	mustExec(t, conn, "BEGIN")
	mustExec(t, conn, "LOCK TABLE fencelock.sharer IN ACCESS EXCLUSIVE MODE")
	released := make(chan error, 1)
	go func() { released <- e.Release(context.Background(), l) }() // ends with the release
	interrupt(t, pg)
	if err := await(t, released, "the end of the release"); err != nil {
		t.Error(err)
	}
	interrupt(t, pg) // what was to free the row
	mustExec(t, conn, "COMMIT")
	eventually(t, "the seat is free", func() bool {
		g, err := other.Acquire(t.Context(), req)
		if err == nil {
			release(t, other, leaseOf(req, g))
		}
		return err == nil
	})
	release(t, e, keeps)
}

// TestTicketOfAWaitThatIsInterrupted: a request without a connection of its own gives up, and its
// ticket cannot be taken back just then. Nobody waits behind it for as long as its process lives.
func TestTicketOfAWaitThatIsInterrupted(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	holds := engine(t, pg.DSN(), patient)
	e := engine(t, pg.DSN(), &pglock.Config{MaxTTL: patient.MaxTTL, MaxWaiters: 1})
	keeps := try(t, e, long("keeps the session"))
	first, second := try(t, holds, long("a")), try(t, holds, long("b"))
	waiter := queueUp(t, t.Context(), e, long("a"))
	release(t, holds, first)
	first = granted(t, waiter) // and keeps the connection
	ctx, cancel := context.WithCancel(t.Context())
	crowded := queueUp(t, ctx, e, long("b"))
	conn := pg.Connect(t)
	mustExec(t, conn, "BEGIN")
	mustExec(t, conn, "LOCK TABLE fencelock.queued IN ACCESS EXCLUSIVE MODE")
	cancel()
	interrupt(t, pg)
	if w := await(t, crowded, "the end of the wait"); !errors.Is(w.err, context.Canceled) {
		t.Errorf("a wait that was given up: %v", w.err)
	}
	mustExec(t, conn, "COMMIT")
	release(t, holds, second)
	eventually(t, "the name is free", func() bool {
		g, err := holds.Acquire(t.Context(), long("b"))
		if err == nil {
			release(t, holds, leaseOf(long("b"), g))
		}
		return err == nil
	})
	release(t, e, first)
	release(t, e, keeps)
}

// TestCloseMeetsATake: an engine is closed while the server executes a request. The name is free
// soon.
func TestCloseMeetsATake(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	for _, req := range []driver.Request{request("a"), shared(request("b"), 0), shared(request("c"), 2)} {
		e, other := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
		try(t, e, request("held"+req.Name))
		backend := holder(t, pg, "held"+req.Name)
		pg.FreezeBackend(t, backend)
		done, closed := make(chan error, 1), make(chan error, 1)
		go func() { // ends with its answer
			_, err := e.Acquire(context.Background(), req)
			done <- err
		}()
		time.Sleep(200 * time.Millisecond)  // the request may be on its way then; if not, the test shows less
		go func() { closed <- e.Close() }() // ends within a second or two
		time.Sleep(200 * time.Millisecond)  // as above
		pg.ThawBackend(t, backend)
		must(t, await(t, closed, "the end of Close"))
		if err := await(t, done, "the end of the request"); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s: got %v, want ErrUnavailable", req.Name, err)
		}
		g, err := other.Acquire(soon(t, 5*time.Second), driver.Request{Name: req.Name, TTL: req.TTL, Wait: true})
		if err != nil {
			t.Errorf("the name %s stays closed: %v", req.Name, err)
		} else {
			release(t, other, driver.Lease{Name: req.Name, Owner: g.Owner, Token: g.Token, TTL: req.TTL})
		}
	}
}
