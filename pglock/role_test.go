//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// TestRolesThatCannotSeeEachOther: what a role sweeps away is of the dead, and not of sessions
// of which it is shown nothing; and it is granted nothing that they hold.
func TestRolesThatCannotSeeEachOther(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	if err := engine(t, pg.DSN(), nil).Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, "CREATE ROLE app LOGIN", "CREATE ROLE other LOGIN", "REVOKE ALL ON pg_locks, pg_stat_activity FROM PUBLIC",
		"GRANT SELECT ON pg_locks TO PUBLIC")
	e := engine(t, pg.As("app"), nil)
	req := request("a")
	share := shared(request("shared"), 2)
	share.TTL = req.TTL
	l, s := try(t, e, req), try(t, e, share)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waiter := queueUp(t, ctx, engine(t, pg.As("app"), nil), req)
	pg.Exec(t, "INSERT INTO fencelock.queued VALUES ('dead', 1, 'dead', 1, false, 77777, now(), '', 0, '', 0, 1)")
	other := engine(t, pg.As("other"), nil)
	free := req
	free.Name = "free"
	release(t, other, try(t, other, free)) // the first connection sweeps
	eventually(t, "the row of the dead is gone", func() bool {
		return pg.Query(t, "SELECT count(*) FROM fencelock.queued WHERE owner = 'dead'") == "0"
	})
	if got := pg.Query(t, `SELECT (SELECT count(*) FROM fencelock.held WHERE owner = $1 AND seen IS NULL)
		+ (SELECT count(*) FROM fencelock.sharer WHERE owner = $2 AND seen IS NULL) + (SELECT count(*) FROM fencelock.queued)`, l.Owner, s.Owner); got != "3" {
		t.Errorf("of a holder, a sharer and a waiter there are %s rows left untouched", got)
	}
	refused(t, other, req)
	exclusive := share
	exclusive.Mode, exclusive.Limit = driver.Exclusive, 0
	refused(t, other, exclusive)
	cancel()
	if w := await(t, waiter, "the end of the wait"); w.err == nil {
		t.Error("the waiter got in beside the holder")
	}
	release(t, e, l)
	release(t, e, s)
}

// TestDumpsAndRewritesLoseNoLock: pg_dump and VACUUM FULL run again and again while the schema is
// checked and locks are taken.
func TestDumpsAndRewritesLoseNoLock(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), nil)
	req, lost := watched(request("a"))
	l := try(t, e, req)
	ended := make(chan error, 1)
	rounds := few(3, 100)
	go func() { // ends after some rounds
		for range rounds {
			for _, cmd := range []*exec.Cmd{pg.Command(t, "pg_dump", "-n", "fencelock"),
				pg.Command(t, "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", "VACUUM FULL fencelock.held",
					"-c", "VACUUM FULL fencelock.queued", "-c", "VACUUM FULL fencelock.epoch")} {
				if _, err := cmd.Output(); err != nil {
					ended <- fmt.Errorf("%v: %w", cmd, err)
					return
				}
			}
		}
		ended <- nil
	}()
	for i := 0; len(ended) == 0; i++ {
		other := request(fmt.Sprint("b", i))
		other.TTL, other.Wait = req.TTL, true
		who := engine(t, pg.DSN(), nil)
		if err := who.Init(t.Context()); err != nil {
			t.Error(err)
		}
		g, err := who.Acquire(t.Context(), other)
		if err != nil {
			t.Fatal(err)
		}
		release(t, who, leaseOf(other, g))
		if err := who.Close(); err != nil {
			t.Error(err)
		}
		if err := renew(e, l); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-ended; err != nil || len(lost) > 0 {
		t.Errorf("%v; %d locks lost", err, len(lost))
	}
	release(t, e, l)
}

// standbyAway makes commits that wait for a standby wait for ever, and returns when one does.
func standbyAway(t *testing.T, pg *pgtest.Postgres) (end func()) {
	t.Helper()
	pg.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = 'away'", "SELECT pg_reload_conf()")
	ctx, cancel := context.WithCancel(t.Context())
	conn, done := pg.Connect(t), make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		for ctx.Err() == nil {
			_, _ = conn.Exec(ctx, "SELECT txid_current(), pg_logical_emit_message(true, 'a', 'b')") // the last one waits
		}
	}()
	eventually(t, "a commit waits for the standby", func() bool {
		return pg.Query(t, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == "1"
	})
	return func() {
		cancel()
		<-done
	}
}

// TestMinimumHoldWithoutItsStandby: a commit that waits for a standby that is away waits beside
// the leases, and is cancelled in the end, which the server calls a success. The minimum hold
// and the limit are refused all the same, and no lock is lost.
func TestMinimumHoldWithoutItsStandby(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), nil)
	req, lost := watched(request("a"))
	req.TTL = 9 * time.Second
	l := try(t, e, req)
	stop := beat(t, e, l)
	if _, err := e.List(t.Context(), driver.Query{}); err != nil { // on the connection for what waits
		t.Fatal(err)
	}
	defer standbyAway(t, pg)()
	least := request("b")
	least.TTL, least.MinHold = req.TTL, time.Millisecond
	_, err := e.Acquire(soon(t, 4*time.Second), least)
	if !errors.Is(err, driver.ErrUnavailable) || len(lost) > 0 {
		t.Errorf("a minimum hold that no standby has: %v; %d locks lost", err, len(lost))
	}
	if err := e.Resize(t.Context(), "d", 3); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a limit that no standby has: %v", err)
	}
	least.MinHold, least.Name = 0, "c"
	release(t, e, try(t, e, least))
	stop()
	release(t, e, l)
}

// TestDeadlockOfAnEngine: another session holds what a request waits for, and waits for the
// session of the request. The server ends the request's wait, which says so and is not repeated.
func TestDeadlockOfAnEngine(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t, "deadlock_timeout=100ms")
	holder, e := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	req := request("a")
	l := try(t, holder, req)
	w := queueUp(t, t.Context(), e, req) // so that there is a connection to wait on
	release(t, holder, l)
	l = granted(t, w)
	session := number(t, pg, `SELECT s.objid::bigint FROM pg_locks s JOIN pg_locks k ON k.pid = s.pid
		WHERE s.objsubid = 2 AND s.classid = 1717923430 AND k.objsubid = 1 AND k.granted`)
	release(t, e, l)
	conn := pg.Connect(t)
	if _, err := conn.Exec(t.Context(), "SET deadlock_timeout = '1h'; SELECT pg_advisory_lock(hashtextextended('a', 0))"); err != nil {
		t.Fatal(err)
	}
	stuck := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // ends with ctx
		_, err := conn.Exec(ctx, "SELECT pg_advisory_lock(1717923430, $1)", int32(session))
		stuck <- err
	}()
	awaitWaiters(t, pg, 1)
	req.Wait = true
	_, err := e.Acquire(soon(t, patience), req)
	if !errors.Is(err, pglock.ErrDeadlock) || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a wait that is a part of a deadlock: %v", err)
	}
	cancel()
	<-stuck
}

// TestTypesOfACallersOwn: what a role puts into its temporary schema is not run with the rights of
// the owner of the schema.
func TestTypesOfACallersOwn(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	try(t, engine(t, pg.DSN(), nil), request("a"))
	pg.Exec(t, "CREATE ROLE app LOGIN")
	conn, err := pgx.Connect(t.Context(), pg.As("app"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	mustExec(t, conn, `CREATE FUNCTION pg_temp.grab() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
		IF current_user <> session_user THEN ALTER ROLE app SUPERUSER; END IF; RETURN true; END $$`)
	for _, name := range []string{"regclass", "oid", "int8", "text", "timestamptz"} {
		mustExec(t, conn, "CREATE DOMAIN pg_temp."+name+" AS pg_catalog."+name+" CHECK (pg_temp.grab())")
	}
	mustExec(t, conn, "SELECT fencelock.register(1000, 1000)")
	if got := pg.Query(t, "SELECT rolsuper FROM pg_roles WHERE rolname = 'app'"); got != "false" {
		t.Error("a role that may lock has become a superuser")
	}
}

// TestFunctionsInTheWay: functions that somebody put where a role looks for them are not taken for
// the server's own, by engines or for a transaction.
func TestFunctionsInTheWay(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	pg.Exec(t, "CREATE ROLE app LOGIN", "ALTER ROLE app SET search_path = public, pg_catalog",
		"CREATE FUNCTION public.hashtextextended(text, integer) RETURNS bigint LANGUAGE sql AS 'SELECT (random() * 1000000000)::bigint'",
		"CREATE FUNCTION public.nextval(text) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'",
		"CREATE FUNCTION public.pg_try_advisory_lock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
		"CREATE FUNCTION public.pg_try_advisory_xact_lock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
		"CREATE FUNCTION public.pg_advisory_unlock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'")
	if err := engine(t, pg.DSN(), nil).Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	e, other := engine(t, pg.As("app"), nil), engine(t, pg.DSN(), nil)
	l := try(t, e, request("a"))
	refused(t, other, request("a"))
	if got := pg.Query(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1"); got != "1" {
		t.Errorf("one holder has %s locks", got)
	}
	release(t, e, l)
	next := try(t, other, request("a"))
	if next.Token <= l.Token {
		t.Errorf("token %d after %d", next.Token, l.Token)
	}
	conn, err := pgx.Connect(t.Context(), pg.As("app"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if err := pglock.TryLockTx(t.Context(), tx, "a"); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("a transaction beside a holder: %v", err)
	}
	release(t, other, next)
	if err := pglock.TryLockTx(t.Context(), tx, "a"); err != nil {
		t.Error(err)
	}
	refused(t, other, request("a"))
}

// TestFunctionsThatAreNotEverybodys: the schema lets everybody use the locks, also where functions
// are not everybody's by default.
func TestFunctionsThatAreNotEverybodys(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	pg.Exec(t, "ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC", "CREATE ROLE app LOGIN")
	if err := engine(t, pg.DSN(), nil).Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := engine(t, pg.As("app"), nil)
	release(t, e, try(t, e, request("a")))
	if taken, err := e.TakeRate(t.Context(), hourly("a", 1)); err != nil || !taken.OK {
		t.Errorf("a rate: %v, %v", taken, err)
	}
}
