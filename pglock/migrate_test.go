//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/pglock"
)

// TestSchemaOfAnotherVersion: engines refuse it, and it is not changed. The error says what to do.
func TestSchemaOfAnotherVersion(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	pg.Exec(t, "CREATE ROLE app LOGIN")
	e := engine(t, pg.DSN(), nil)
	must(t, e.Init(t.Context()))
	pg.Exec(t, "UPDATE fencelock.epoch SET version = 99", "DROP FUNCTION fencelock.micros()")
	other := engine(t, pg.As("app"), nil)
	_, errTry := e.Acquire(t.Context(), request("a"))
	_, errApp := other.Acquire(t.Context(), request("a"))
	_, errRecord := e.Records().Get(t.Context(), "a")
	for _, err := range []error{e.Init(t.Context()), errTry, errApp, errRecord} {
		if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "version 99") || !strings.Contains(err.Error(), "drop the schema fencelock") {
			t.Errorf("%v", err)
		}
	}
	if got := pg.Query(t, "SELECT to_regproc('fencelock.micros') IS NULL"); got != "true" {
		t.Error("a schema of another version was changed")
	}
}

// TestSchemaWithoutData: a restore of the schema without its data is an error, never a
// first token.
func TestSchemaWithoutData(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), nil)
	spend(t, e, request("a"), 3)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	dump, err := pg.Command(t, "pg_dump", "--schema-only", "-n", "fencelock", "-d", "postgres").Output()
	if err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, "DROP SCHEMA fencelock CASCADE")
	psql := pg.Command(t, "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", "postgres")
	psql.Stdin = strings.NewReader(string(dump))
	if out, err := psql.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for range 2 {
		g, err := engine(t, pg.DSN(), nil).Acquire(t.Context(), request("a"))
		if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "fencelock.epoch is empty") {
			t.Errorf("token %d, %v", g.Token, err)
		}
		verdict.Is(t, "PostgreSQL: the schema is restored without its data", verdict.Refused, verdict.OfError(err))
	}
}

// TestSchemaMadeAnew: dropped and created again within a moment, it goes on counting.
func TestSchemaMadeAnew(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	var last int64
	for range 5 {
		e := engine(t, pg.DSN(), nil)
		l := spend(t, e, request("a"), 3)
		if l.Token <= last {
			t.Errorf("token %d after %d", l.Token, last)
		}
		last = l.Token
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		pg.Exec(t, "DROP SCHEMA fencelock CASCADE")
	}
}

// TestNobodyWritesTheEpoch: no role but the owner of the schema may.
func TestNobodyWritesTheEpoch(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	try(t, engine(t, pg.DSN(), nil), request("a"))
	pg.Exec(t, "CREATE ROLE app LOGIN")
	try(t, engine(t, pg.As("app"), nil), request("b"))
	conn, err := pgx.Connect(t.Context(), pg.As("app"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, sql := range []string{"UPDATE fencelock.epoch SET system = 0", "DELETE FROM fencelock.epoch",
		"DELETE FROM fencelock.start", "SELECT setval('fencelock.token', 1)", "SELECT fencelock.restart(1)"} {
		if _, err := conn.Exec(t.Context(), sql); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

// TestSchemaDuringADump: completing the schema, and taking locks, waits for nobody who reads it.
func TestSchemaDuringADump(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), nil)
	req, lost := watched(request("a"))
	l := try(t, e, req)
	tx, err := pg.Connect(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"epoch", "held", "sharer", "queued", "minimum", "resized", "start"} { // as pg_dump does
		if _, err := tx.Exec(t.Context(), "LOCK TABLE fencelock."+table+" IN ACCESS SHARE MODE"); err != nil {
			t.Fatal(err)
		}
	}
	if err := engine(t, pg.DSN(), nil).Init(t.Context()); err != nil {
		t.Errorf("Init: %v", err)
	}
	if err := renew(e, l); err != nil || len(lost) > 0 {
		t.Errorf("the lock of before: %v", err)
	}
	release(t, e, try(t, e, request("b")))
}

// TestExclusiveTableLocks: while somebody rewrites the tables, locks that are held stay, and
// requests fail or wait; afterwards all goes on.
func TestExclusiveTableLocks(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e := engine(t, pg.DSN(), nil)
	req, lost := watched(request("a"))
	req.TTL = 8 * time.Second
	l := try(t, e, req)
	tx := lockTables(t, pg.Connect(t))
	done := make(chan error, 1)
	go func() { // ends when the tables are free again
		other := request("b")
		other.TTL, other.Wait = req.TTL, true
		g, err := e.Acquire(t.Context(), other)
		if err == nil {
			err = e.Release(t.Context(), leaseOf(other, g))
		}
		done <- err
	}()
	for end := time.Now().Add(req.TTL * 5 / 4); time.Now().Before(end); time.Sleep(req.TTL / 8) {
		if err := renew(e, l); err != nil {
			t.Fatalf("renewing during VACUUM FULL: %v", err)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := await(t, done, "the request for another name"); err != nil || len(lost) > 0 {
		t.Error(err)
	}
	release(t, e, l)
}

// lockTables locks the tables that a lock and its release change, which a sweep takes in
// another order.
func lockTables(t *testing.T, conn *pgx.Conn) pgx.Tx {
	t.Helper()
	for {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = tx.Exec(t.Context(), "LOCK TABLE fencelock.held, fencelock.sharer, fencelock.queued IN ACCESS EXCLUSIVE MODE")
		if err == nil {
			return tx
		}
		if !strings.Contains(err.Error(), "40P01") { // no deadlock
			t.Fatal(err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSchemaDroppedWhileInUse: processes that hold locks then go on, and others come: the sessions
// of before are neither asked for functions that are gone nor waited for.
func TestSchemaDroppedWhileInUse(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e := engine(t, pg.DSN(), patient)
	l := try(t, e, long("a"))
	pg.Exec(t, "DROP SCHEMA fencelock CASCADE")
	ctx := soon(t, patience)
	for _, who := range []driver.Engine{e, engine(t, pg.DSN(), patient)} {
		req := long("b")
		req.Wait = true
		g, err := who.Acquire(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		release(t, who, leaseOf(req, g))
	}
	refused(t, engine(t, pg.DSN(), patient), long("a"))
	if err := renew(e, l); err != nil {
		t.Error(err)
	}
	release(t, e, l)
	release(t, e, try(t, e, long("a")))
}

// TestNumbersOfSessions: those that somebody has are passed over.
func TestNumbersOfSessions(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	conn := pg.Connect(t)
	mustExec(t, conn, "SELECT pg_advisory_lock(1717923430, id) FROM generate_series(1, 1000) id")
	e := engine(t, pg.DSN(), nil)
	g, err := e.Acquire(soon(t, patience/2), request("a"))
	if err != nil {
		t.Fatal(err)
	}
	release(t, e, leaseOf(request("a"), g))
}

// olderFunctions makes the functions of a schema those of an earlier program.
func olderFunctions(t *testing.T, pg *pgtest.Postgres) {
	t.Helper()
	pg.Exec(t, "COMMENT ON SCHEMA fencelock IS NULL", "DROP FUNCTION fencelock.sweep_page, fencelock.retire, fencelock.give_up")
}

const newerSQL = "SELECT to_regproc('fencelock.sweep_page') IS NOT NULL"

// TestOlderFunctions: the owner of the schema replaces them. Another role works with them, and
// doctor says so.
func TestOlderFunctions(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	pg.Exec(t, "CREATE ROLE app LOGIN")
	old := engine(t, pg.DSN(), nil)
	l := try(t, old, request("a"))
	olderFunctions(t, pg)
	app := engine(t, pg.As("app"), nil)
	app.SweepEvery(10 * time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	w := queueUp(t, ctx, app, request("a"))
	cancel()
	await(t, w, "the end of the wait")
	w = queueUp(t, t.Context(), app, request("a"))
	release(t, old, l)
	l = granted(t, w)
	judged(t, inspect(t, pg.As("app"), nil, 5*time.Second), "schema", driver.Warning, "revision 0")
	if got := pg.Query(t, newerSQL); got != "false" {
		t.Error("a role that does not own the schema replaced its functions")
	}
	release(t, old, try(t, old, request("b"))) // on connections of before
	owner := engine(t, pg.DSN(), nil)
	release(t, owner, try(t, owner, request("b")))
	if got := pg.Query(t, newerSQL); got != "true" {
		t.Error("the owner of the schema did not replace its functions")
	}
	judged(t, inspect(t, pg.As("app"), nil, 5*time.Second), "schema", driver.Good, "revision")
	must(t, renew(app, l))
	release(t, app, l)
}

// TestSweepOfOlderPrograms: they call another function, whose work and locks are bounded too.
func TestSweepOfOlderPrograms(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t, "max_locks_per_transaction=10", "max_connections=20")
	must(t, engine(t, pg.DSN(), nil).Init(t.Context()))
	leaveDead(t, pg, 1000)
	before := number(t, pg, deadSQL)
	pg.Exec(t, "SELECT fencelock.sweep(0, (extract(epoch FROM now()) * 1000000)::bigint)")
	if gone := before - number(t, pg, deadSQL); gone < 600 || gone > 800 {
		t.Errorf("%d rows were deleted, want a page of each of four tables", gone)
	}
}

// TestSweepOfOlderFunctions: they sweep, too.
func TestSweepOfOlderFunctions(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	must(t, engine(t, pg.DSN(), nil).Init(t.Context()))
	olderFunctions(t, pg)
	pg.Exec(t, "CREATE ROLE app LOGIN", "INSERT INTO fencelock.minimum VALUES (1, 'old', now() - interval '1 hour')",
		"CREATE OR REPLACE FUNCTION fencelock.sweep(mine integer, now_client bigint) RETURNS void LANGUAGE sql AS 'DELETE FROM fencelock.minimum'")
	app := engine(t, pg.As("app"), nil)
	release(t, app, try(t, app, request("a")))
	eventually(t, "a sweep by older functions", func() bool { return pg.Query(t, "SELECT count(*) FROM fencelock.minimum") == "0" })
}

// TestInitOfAnOlderProgram: it leaves the functions of a later one.
func TestInitOfAnOlderProgram(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	must(t, engine(t, pg.DSN(), nil).Init(t.Context()))
	pg.Exec(t, "COMMENT ON SCHEMA fencelock IS 'functions of revision 999'", "DROP FUNCTION fencelock.sweep_page")
	must(t, engine(t, pg.DSN(), nil).Init(t.Context()))
	if got := pg.Query(t, newerSQL); got != "false" {
		t.Error("Init replaced the functions of a later program")
	}
}

// TestFunctionsThatCannotBeReplaced: a program works with those of an earlier one.
func TestFunctionsThatCannotBeReplaced(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	must(t, engine(t, pg.DSN(), nil).Init(t.Context()))
	olderFunctions(t, pg)
	pg.Exec(t, "CREATE FUNCTION fencelock.sweep_page(integer, bigint, text) RETURNS integer LANGUAGE sql AS 'SELECT 1'")
	e := engine(t, pg.DSN(), nil)
	release(t, e, try(t, e, request("a")))
	judged(t, inspect(t, pg.DSN(), nil, 5*time.Second), "schema", driver.Warning, "revision 0")
}

// TestFunctionsOfAMember: a member of the role that owns the schema, or a superuser, replaces the functions.
// They belong to the owner of the schema.
func TestFunctionsOfAMember(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	pg.Exec(t, `CREATE ROLE "Some locks" LOGIN`, `CREATE ROLE app LOGIN IN ROLE "Some locks"`, `GRANT CREATE ON DATABASE postgres TO "Some locks"`)
	pg.Exec(t, `SET ROLE "Some locks"`, pglock.Schema(), "RESET ROLE")
	for _, role := range []string{"app", "postgres"} {
		olderFunctions(t, pg)
		e := engine(t, pg.As(role), nil)
		release(t, e, try(t, e, request("a")))
		if got := pg.Query(t, newerSQL); got != "true" {
			t.Errorf("%s did not replace the functions", role)
		}
		if got := pg.Query(t, "SELECT count(*) FROM pg_proc WHERE pronamespace = 'fencelock'::regnamespace AND proowner <> '\"Some locks\"'::regrole"); got != "0" {
			t.Errorf("%s functions do not belong to the owner of the schema", got)
		}
	}
}
