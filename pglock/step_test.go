//go:build unix

package pglock_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/pglock"
	"github.com/jackc/pgx/v5"
)

// gate is the advisory lock at which a test stops the server.
const gate = 4711

// stopAt makes the server stop at the gate before or after changes of the rows of name "a", in
// the transaction of the change.
func stopAt(t testing.TB, pg *pgtest.Postgres, table, when string) {
	t.Helper()
	row := "NEW"
	if strings.HasSuffix(when, "DELETE") {
		row = "OLD"
	}
	pg.Exec(t, `CREATE OR REPLACE FUNCTION public.gate() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_advisory_xact_lock_shared(0, 4711); RETURN coalesce(NEW, OLD); END $$`,
		"CREATE TRIGGER gate "+when+" ON fencelock."+table+" FOR EACH ROW WHEN ("+row+".name = 'a') EXECUTE FUNCTION public.gate()")
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
func stopped(t testing.TB, pg *pgtest.Postgres) uint32 {
	t.Helper()
	var pid uint32
	conn := pg.Connect(t)
	eventually(t, "the server stands at the gate", func() bool {
		err := conn.QueryRow(t.Context(), `SELECT pid FROM `+locksHere+` WHERE locktype = 'advisory' AND objsubid = 2
			AND classid = 0 AND objid = $1 AND NOT granted`, gate).Scan(&pid)
		return err == nil
	})
	return pid
}

// few is how often a test does something: more often if there is time.
func few(short, slow int) int {
	if os.Getenv("FENCELOCK_SLOW") != "" {
		return slow
	}
	return short
}

// patient is for requests whose sessions stand at the gate: the server gives them a
// thirty-second of the TTL.
var patient = &pglock.Config{MaxTTL: time.Hour}

// long is a request of a patient engine.
func long(name string) driver.Request {
	req := request(name)
	req.TTL = patient.MaxTTL
	return req
}

// TestCutBetweenTheStepsOfAnAcquire: the server's process of a request ends between two steps.
// Nobody was told of a grant, so nobody waits for it: the request asks once more, and has it.
func TestCutBetweenTheStepsOfAnAcquire(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: the holder is killed", verdict.Safe)
	pg := pgtest.Database(t)
	next := engine(t, pg.DSN(), nil)
	last := spend(t, next, request("a"), 1)
	for what, when := range map[string]string{
		"the lock is taken, and nothing is written": "BEFORE INSERT OR UPDATE",
		"the holder is written, and not committed":  "AFTER INSERT OR UPDATE",
	} {
		e, conn := engine(t, pg.DSN(), patient), pg.Connect(t)
		stopAt(t, pg, "held", when)
		open := shut(t, conn)
		acquired := make(chan wait, 1)
		go func() { // ends with the grant
			g, err := e.Acquire(context.Background(), long("a"))
			acquired <- wait{e, leaseOf(long("a"), g), err}
		}()
		backend := stopped(t, pg)
		refused(t, next, request("a"))
		pg.Terminate(t, backend)
		open()
		w := await(t, acquired, "a grant after the cut")
		if w.err != nil || w.lease.Token <= last.Token {
			t.Errorf("%s: token %d after %d, %v", what, w.lease.Token, last.Token, w.err)
		}
		pg.Exec(t, "DROP TRIGGER gate ON fencelock.held")
		release(t, e, w.lease)
		last = try(t, next, request("a"))
		release(t, next, last)
	}
}

// TestCutBetweenTheStepsOfARelease: the server's process of a holder ends between two steps of
// its release. The release is never told to have succeeded, and the name is closed for the TTL.
func TestCutBetweenTheStepsOfARelease(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: the holder is killed", verdict.Safe)
	pg := pgtest.Database(t)
	for what, when := range map[string]string{
		"nothing is done": "BEFORE UPDATE",
		"the lock is given back, and not committed": "AFTER UPDATE",
	} {
		e, next, conn := engine(t, pg.DSN(), patient), engine(t, pg.DSN(), patient), pg.Connect(t)
		l := try(t, e, long("a"))
		stopAt(t, pg, "held", when)
		open := shut(t, conn)
		released := make(chan error, 1)
		go func() { released <- e.Release(context.Background(), l) }() // ends with the session
		pg.Terminate(t, stopped(t, pg))
		if err := await(t, released, "the end of a release"); err == nil {
			t.Errorf("%s: the release succeeded", what)
		}
		open()
		pg.Exec(t, "DROP TRIGGER gate ON fencelock.held")
		eventually(t, "the server has ended the session", func() bool {
			return pg.Query(t, "SELECT count(*) FROM "+locksHere+" WHERE locktype = 'advisory' AND objsubid = 1") == "0"
		})
		refused(t, next, long("a"))
		if got := pg.Query(t, "SELECT owner FROM fencelock.held WHERE name = 'a'"); got != l.Owner {
			t.Errorf("%s: the row is of %q, and not of the holder", what, got)
		}
		pg.Exec(t, "UPDATE fencelock.held SET owner = NULL") // as if the lease had passed
	}
}

// TestRowOfARelease: who gets the lock while its release has not committed waits for that, and is
// granted at once; the old version of the row would have closed the name for a TTL.
func TestRowOfARelease(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: an answer is lost", verdict.Safe)
	pg := pgtest.Database(t)
	e, next, conn := engine(t, pg.DSN(), patient), engine(t, pg.DSN(), patient), pg.Connect(t)
	l := try(t, e, long("a"))
	stopAt(t, pg, "held", "AFTER UPDATE")
	open := shut(t, conn)
	released, taken := make(chan error, 1), make(chan wait, 1)
	go func() { released <- e.Release(context.Background(), l) }() // ends when the gate opens
	stopped(t, pg)
	go func() { // ends with the grant
		g, err := next.Acquire(context.Background(), long("a"))
		taken <- wait{next, leaseOf(long("a"), g), err}
	}()
	eventually(t, "the next one waits for the row", func() bool {
		return pg.Query(t, "SELECT count(*) FROM "+locksHere+" WHERE locktype = 'transactionid' AND NOT granted") == "1"
	})
	if len(taken) > 0 {
		t.Error("the next one was granted before the release was committed")
	}
	open()
	if err := await(t, released, "the end of the release"); err != nil {
		t.Error(err)
	}
	w := await(t, taken, "the grant")
	if w.err != nil || w.lease.Token <= l.Token {
		t.Fatalf("token %d after %d, %v", w.lease.Token, l.Token, w.err)
	}
	release(t, next, w.lease)
}

// TestRowCommittedAfterAWaitersSnapshot: a holder's row is committed while a waiter waits in the
// server, and the holder vanishes. The waiter sees it, and lets the lease pass.
func TestRowCommittedAfterAWaitersSnapshot(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: the holder is killed", verdict.Safe)
	pg := pgtest.Database(t)
	e, next, conn := engine(t, pg.DSN(), patient), engine(t, pg.DSN(), patient), pg.Connect(t)
	if err := e.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	stopAt(t, pg, "held", "AFTER INSERT")
	open := shut(t, conn)
	req, lost := watched(long("a"))
	acquired := make(chan wait, 1)
	go func() { // ends when the gate opens
		g, err := e.Acquire(context.Background(), req)
		acquired <- wait{e, leaseOf(req, g), err}
	}()
	backend := stopped(t, pg)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waiter := queueUp(t, ctx, next, long("a"))
	eventually(t, "the waiter waits for the key", func() bool {
		return pg.Query(t, "SELECT count(*) FROM "+locksHere+" WHERE locktype = 'advisory' AND objsubid = 1 AND NOT granted") == "1"
	})
	open()
	w := await(t, acquired, "the grant")
	if w.err != nil {
		t.Fatal(w.err)
	}
	pg.Terminate(t, backend)
	await(t, lost, "the loss")
	eventually(t, "the waiter has got the key and seen the row", func() bool {
		return pg.Query(t, "SELECT owner FROM fencelock.held WHERE name = 'a' AND seen IS NOT NULL") == w.lease.Owner
	})
	cancel()
	if w := await(t, waiter, "the end of the wait"); w.err == nil {
		t.Errorf("the waiter got in before the lease of a holder whose row it could not see at first")
	}
}

// TestExitAtOnceAfterRelease: a process is gone the moment its release has returned, and
// the next one is not refused.
func TestExitAtOnceAfterRelease(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	next := engine(t, pg.DSN(), nil)
	release(t, next, try(t, next, request("a")))
	for range few(5, 300) {
		p := proc.Start(t, "default", pg.DSN())
		l := try(t, p, request("a"))
		release(t, p, l)
		p.Kill(t)
		release(t, next, try(t, next, request("a")))
	}
}
