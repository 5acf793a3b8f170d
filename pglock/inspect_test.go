package pglock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faults"
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

// TestInspectLeavesNothing: neither rows nor connections.
func TestInspectLeavesNothing(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t, "full_page_writes=off")
	found := inspect(t, pg.DSN(), nil, 5*time.Second)
	judged(t, found, "probe lock", driver.Good, "acquired")
	judged(t, found, "rights", driver.Good, "everything")
	judged(t, found, "clock", driver.Good, "the server is ")
	judged(t, found, "durability", driver.Warning, "full_page_writes = off")
	conn := pg.Connect(t)
	for _, table := range []string{"held", "sharer", "queued", "minimum", "record", "rate"} {
		var rows int
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM fencelock."+table).Scan(&rows); err != nil || rows > 0 {
			t.Errorf("%d rows of %s are left, %v", rows, table, err)
		}
	}
	eventually(t, "all connections are closed", func() bool {
		var open int
		err := conn.QueryRow(t.Context(), "SELECT count(*) FROM "+activityHere+" WHERE application_name = 'fencelock'").Scan(&open)
		return err == nil && open == 0
	})
}

// TestInspectRights: each part that a role may not use is named.
func TestInspectRights(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	pg.Exec(t, "CREATE ROLE app LOGIN")
	judged(t, inspect(t, pg.As("app"), nil, 5*time.Second), "probe lock", driver.Broken, "may not create it")
	inspect(t, pg.DSN(), nil, 5*time.Second) // which creates it
	judged(t, inspect(t, pg.As("app"), nil, 5*time.Second), "rights", driver.Broken, "records (")
	pg.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON fencelock.record TO app")
	judged(t, inspect(t, pg.As("app"), nil, 5*time.Second), "rights", driver.Good, "")
	pg.Exec(t, "REVOKE ALL ON fencelock.minimum FROM PUBLIC")
	pg.Exec(t, "REVOKE ALL ON fencelock.queued FROM PUBLIC")
	f := inspect(t, pg.As("app"), nil, 5*time.Second)
	for _, part := range []string{"waiting", "minimum-hold"} {
		judged(t, f, "rights", driver.Broken, part)
	}
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
	judged(t, inspect(t, full.DSN(), nil, 5*time.Second), "lock table", driver.Warning, " used")
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
}

// Behind a pooler that is not allowed, nothing that an inspection sets may stay with a
// connection that belongs to others.
func TestInspectLeavesNoSetting(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	bouncer := pgtest.StartPgBouncer(t, pg, "transaction", "default_pool_size=1")
	judged(t, inspect(t, bouncer.DSN(), nil, 5*time.Second), "pooler", driver.Broken, "a connection pooler")
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
