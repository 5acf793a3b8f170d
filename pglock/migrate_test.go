//go:build unix

package pglock_test

import (
	_ "embed"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// version1 is the schema of the version before this one.
//
//go:embed testdata/version1.sql
var version1 string

// An older client of the version before, as far as locks and tokens go.
type olderClient struct {
	t     *testing.T
	conn  *pgx.Conn
	id    int64
	epoch int64
}

func older(t *testing.T, pg *pgtest.Postgres) *olderClient {
	t.Helper()
	c := &olderClient{t: t, conn: pg.Connect(t)}
	var closed int64
	if err := c.conn.QueryRow(t.Context(), "SELECT id, epoch, closed FROM fencelock.enter(30000, 1000)").Scan(&c.id, &c.epoch, &closed); err != nil {
		t.Fatal(err)
	}
	if closed > 0 {
		t.Fatalf("closed for %d ms", closed)
	}
	return c
}

// token takes a lock as the version before did, 0 if it is held.
func (c *olderClient) token(name string) int64 {
	c.t.Helper()
	var n int64
	err := c.conn.QueryRow(c.t.Context(), `SELECT CASE WHEN pg_try_advisory_lock(hashtextextended($1, 0))
		THEN ($2::bigint << 40) + nextval('fencelock.token') ELSE 0 END`, name, c.epoch).Scan(&n)
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

func (c *olderClient) release(name string) {
	c.t.Helper()
	if _, err := c.conn.Exec(c.t.Context(), "SELECT pg_advisory_unlock(hashtextextended($1, 0))", name); err != nil {
		c.t.Fatal(err)
	}
}

// TestVersionBeforeBesideThisOne: the schema of the version before, which is in use, is
// completed by the first connection whose role may. The versions exclude one
// another, and their tokens rise together.
func TestVersionBeforeBesideThisOne(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	pg.Exec(t, "CREATE ROLE app LOGIN", version1)
	old := older(t, pg)
	first := old.token("a")
	_, err := engine(t, pg.As("app"), nil).Acquire(t.Context(), request("b"))
	if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "older version") {
		t.Errorf("a role that may not complete the schema: %v", err)
	}
	e := engine(t, pg.DSN(), nil)
	refused(t, e, request("a"))
	old.release("a")
	l := try(t, e, request("a"))
	if old.token("a") != 0 {
		t.Error("the version before took a lock that this one holds")
	}
	release(t, e, l)
	second := old.token("a")
	old.release("a")
	later := older(t, pg).token("a")
	if first >= l.Token || l.Token >= second || second >= later {
		t.Errorf("tokens of both versions in turn: %d, %d, %d, %d", first, l.Token, second, later)
	}
}

// TestVersionBeforeOnANewerSchema: a client of the version before, which completes the schema in its
// way, is told what to do, and changes nothing.
func TestVersionBeforeOnANewerSchema(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), nil)
	l := try(t, e, request("a"))
	functions := pg.Query(t, "SELECT count(*) FROM pg_proc WHERE pronamespace = 'fencelock'::regnamespace")
	_, err := pg.Connect(t).Exec(t.Context(), version1)
	if err == nil || !strings.Contains(err.Error(), "of a newer version than this program: update the program") {
		t.Errorf("the version before on the schema of this one: %v", err)
	}
	if got := pg.Query(t, "SELECT count(*) FROM pg_proc WHERE pronamespace = 'fencelock'::regnamespace"); got != functions {
		t.Errorf("%s functions, %s before", got, functions)
	}
	release(t, e, l)
}

// TestTokensRiseThroughAnUpgrade: what comes after is greater than all tokens of
// before, and a crash after it begins anew.
func TestTokensRiseThroughAnUpgrade(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t, lazyDisk...)
	pg.Exec(t, version1)
	last := older(t, pg).token("a")
	cfg, req := &pglock.Config{MaxTTL: time.Second}, request("b")
	req.TTL = time.Second
	e := engine(t, pg.DSN(), cfg)
	l := spend(t, e, req, 1)
	if l.Token <= last {
		t.Errorf("token %d after %d", l.Token, last)
	}
	pg.Kill(t)
	pg.Restart(t)
	if next := regained(t, e, req); next.Token-l.Token < leap {
		t.Errorf("after a crash token %d came after %d", next.Token, l.Token)
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
	}
}

// TestSchemaMadeAnew: dropped and created again within a moment, it goes on counting.
func TestSchemaMadeAnew(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
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
	for _, sql := range []string{"UPDATE fencelock.epoch SET epoch = 0", "DELETE FROM fencelock.epoch",
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
	pg := pgtest.StartPostgres(t)
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
	pg := pgtest.StartPostgres(t)
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
	pg := pgtest.StartPostgres(t)
	conn := pg.Connect(t)
	mustExec(t, conn, "SELECT pg_advisory_lock(1717923430, id) FROM generate_series(1, 1000) id")
	e := engine(t, pg.DSN(), nil)
	g, err := e.Acquire(soon(t, patience/2), request("a"))
	if err != nil {
		t.Fatal(err)
	}
	release(t, e, leaseOf(request("a"), g))
}
