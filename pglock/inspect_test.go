package pglock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/faults"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
	"github.com/jackc/pgx/v5"
)

// inspect returns the findings by check, each of them complete.
func inspect(t *testing.T, dsn string, cfg *pglock.Config, ttl time.Duration) map[string]driver.Finding {
	t.Helper()
	all, err := engine(t, dsn, cfg).Inspect(t.Context(), ttl)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]driver.Finding{}
	for _, f := range all {
		if f.Check == "" || f.Observed == "" || (f.Severity == driver.Good) != (f.Impact == "" && f.Fix == "") {
			t.Errorf("incomplete finding %+v", f)
		}
		found[f.Check] = f
	}
	return found
}

// judged fails the test unless a check was judged so, with words to say.
func judged(t *testing.T, found map[string]driver.Finding, check string, want driver.Severity, says string) {
	t.Helper()
	if f := found[check]; f.Severity != want || !strings.Contains(f.Observed, says) {
		t.Errorf("%s: got %v, %q; want %v that says %q", check, f.Severity, f.Observed, want, says)
	}
}

func TestInspectRoom(t *testing.T) {
	t.Parallel()
	small := pgtest.StartPostgres(t, "max_connections=12", "max_locks_per_transaction=10", "full_page_writes=off")
	found := inspect(t, small.DSN(), nil, 5*time.Second)
	judged(t, found, "connections", driver.Warning, "of 9 free")
	judged(t, found, "lock table", driver.Warning, "room for 120 locks")
	judged(t, found, "durability", driver.Warning, "full_page_writes = off")
	judged(t, found, "lease", driver.Good, "5s")
	judged(t, found, "synchronous_commit", driver.Good, "on")
	judged(t, found, "clock", driver.Good, "the server is ")
	judged(t, found, "schema", driver.Good, "the first lock creates it")

	found = inspect(t, small.DSN(), &pglock.Config{MaxWaiters: 1}, 5*time.Second)
	judged(t, found, "connections", driver.Good, "free")
}

// TestInspectConnectionLimit: that of the role counts where it is narrower than the server's.
func TestInspectConnectionLimit(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	pg.Exec(t, "CREATE ROLE app LOGIN CONNECTION LIMIT 5")
	judged(t, inspect(t, pg.As("app"), nil, 5*time.Second), "connections", driver.Warning, "4 of 5 free for the role app")
	pg.Exec(t, "ALTER ROLE app CONNECTION LIMIT -1")
	judged(t, inspect(t, pg.As("app"), nil, 5*time.Second), "connections", driver.Good, "free for the server")
}

// TestInspectOldSnapshot: it is found, and who has it.
func TestInspectOldSnapshot(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	judged(t, inspect(t, pg.DSN(), nil, 5*time.Second), "snapshots", driver.Good, "")
	conn := pg.Connect(t)
	tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err == nil {
		_, err = tx.Exec(t.Context(), "SELECT 1")
	}
	if err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, "DO $$ BEGIN FOR i IN 1..11000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$")
	judged(t, inspect(t, pg.DSN(), nil, 5*time.Second), "snapshots", driver.Warning, fmt.Sprint("server process ", conn.PgConn().PID()))
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	judged(t, inspect(t, pg.DSN(), nil, 5*time.Second), "snapshots", driver.Good, "")
}

func TestInspectFullTable(t *testing.T) {
	t.Parallel()
	full := pgtest.StartPostgres(t, "max_locks_per_transaction=64", "max_connections=20")
	conn := full.Connect(t)
	if _, err := conn.Exec(t.Context(), "SELECT count(pg_advisory_lock(n)) FROM generate_series(1, 900) n"); err != nil {
		t.Fatal(err)
	}
	judged(t, inspect(t, full.DSN(), nil, 5*time.Second), "lock table", driver.Warning, " taken")
}

func TestInspectLatency(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	proxy, err := faults.NewProxy(strings.TrimSuffix(strings.TrimPrefix(pg.DSN(), "postgres://postgres@"), "/postgres?sslmode=disable"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	far := "postgres://postgres@" + proxy.Addr() + "/postgres?sslmode=disable"
	judged(t, inspect(t, far, nil, time.Minute), "latency", driver.Good, "p50 ")
	proxy.Delay(faults.ToClient, 200*time.Millisecond)
	judged(t, inspect(t, far, nil, time.Second), "latency", driver.Broken, "p50 ")
	judged(t, inspect(t, far, nil, time.Minute), "latency", driver.Good, "p50 ")
}

// Behind a pooler in transaction mode, what an inspection sets must not stay with
// a connection that belongs to others.
func TestInspectLeavesNoSetting(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	bouncer := pgtest.StartPgBouncer(t, pg, "transaction", "default_pool_size=1")
	for _, c := range []struct {
		allow bool
		want  driver.Severity
	}{{false, driver.Broken}, {true, driver.Warning}} {
		found := inspect(t, bouncer.DSN(), &pglock.Config{AllowPooler: c.allow}, 5*time.Second)
		judged(t, found, "pooler", c.want, "a connection pooler")
		judged(t, found, "lease", driver.Good, "5s")
	}
	e := engine(t, bouncer.DSN(), nil)
	if all, err := e.Inspect(t.Context(), time.Second); err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	conn, err := pgx.Connect(t.Context(), bouncer.DSN()+"&default_query_exec_mode=simple_protocol")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var got string
	if err := conn.QueryRow(t.Context(), "SHOW idle_session_timeout").Scan(&got); err != nil || got != "0" {
		t.Errorf("idle_session_timeout stayed at %s, %v", got, err)
	}
}
