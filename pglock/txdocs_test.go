//go:build unix

package pglock_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// guidePages are the pages of the guide, the one that creates roles first.
var guidePages = []string{"postgres.md", "postgres-transactions.md", "postgres-psql.md"}

// sqlBlocks returns the sql blocks of the guide.
func sqlBlocks(t *testing.T) []string {
	t.Helper()
	var blocks []string
	for _, page := range guidePages {
		b, err := os.ReadFile("../docs/engines/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?ms)^ *```sql\n(.*?)^ *```$").FindAllStringSubmatch(string(b), -1) {
			blocks = append(blocks, m[1])
		}
	}
	return blocks
}

// guideBlock returns the one block that contains all the texts.
func guideBlock(t *testing.T, texts ...string) string {
	t.Helper()
	var found []string
next:
	for _, block := range sqlBlocks(t) {
		for _, text := range texts {
			if !strings.Contains(block, text) {
				continue next
			}
		}
		found = append(found, block)
	}
	if len(found) != 1 {
		t.Fatalf("%d blocks of the guide contain %q, want 1", len(found), texts)
	}
	return found[0]
}

// table runs a query and returns its rows, the columns by name, as text.
func table(t *testing.T, conn *pgx.Conn, sql string) []map[string]string {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql)
	if err != nil {
		t.Fatalf("%v\n%s", err, sql)
	}
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (map[string]string, error) {
		values, err := r.Values()
		row := map[string]string{}
		for i, f := range r.FieldDescriptions() {
			row[f.Name] = fmt.Sprint(values[i])
		}
		return row, err
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, sql)
	}
	return all
}

// guideServer has the schema and two holders of "job", one of them waiting.
func guideServer(t *testing.T) (p *pgtest.Postgres, holder, waiter *pgx.Conn) {
	p = pgtest.StartPostgres(t)
	p.Exec(t, pglock.Schema())
	holder, waiter = p.Connect(t), p.Connect(t)
	mustExec(t, holder, "SET application_name = 'nightly'; SELECT pg_advisory_lock(hashtextextended('job', 0))")
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { // ends when the lock is free, or with the test
		defer close(over)
		_, _ = waiter.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended('job', 0))")
	}()
	t.Cleanup(func() { cancel(); <-over })
	awaitWaiters(t, p, 1)
	return p, holder, waiter
}

func mustExec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%v\n%s", err, sql)
	}
}

// Every block of SQL in the guide runs as it stands.
func TestGuideRuns(t *testing.T) {
	t.Parallel()
	p, _, _ := guideServer(t)
	blocks := sqlBlocks(t)
	if len(blocks) < 10 {
		t.Fatalf("the guide has %d blocks of SQL", len(blocks))
	}
	for _, block := range blocks {
		if strings.Contains(block, "pg_advisory_xact_lock(hashtextextended") {
			block = strings.ReplaceAll(block, "'job'", "'free'") // or it would wait
		}
		p.Exec(t, block)
	}
}

func TestGuideShowsHoldersAndWaiters(t *testing.T) {
	t.Parallel()
	p, holder, waiter := guideServer(t)
	conn := p.Connect(t)
	rows := table(t, conn, guideBlock(t, "blocked_by"))
	if len(rows) != 2 {
		t.Fatalf("%d rows, want 2: %v", len(rows), rows)
	}
	holderPID, waiterPID := fmt.Sprint(holder.PgConn().PID()), fmt.Sprint(waiter.PgConn().PID())
	if h := rows[0]; h["granted"] != "true" || h["pid"] != holderPID || h["application_name"] != "nightly" || h["mode"] != "ExclusiveLock" {
		t.Errorf("the holder is %v", h)
	}
	if w := rows[1]; w["granted"] != "false" || w["pid"] != waiterPID || w["blocked_by"] != "["+holderPID+"]" {
		t.Errorf("the waiter is %v", w)
	}

	numbers := table(t, conn, guideBlock(t, "table_full"))[0]
	if numbers["held"] != "1" || numbers["waiting"] != "1" || numbers["longest_wait"] == "<nil>" {
		t.Errorf("the dashboard says %v", numbers)
	}

	half := table(t, conn, guideBlock(t, "4294967295"))[0]
	found := p.Query(t, fmt.Sprintf("SELECT count(*) FROM pg_locks WHERE classid = %s AND objid = %s AND objsubid = %s",
		half["classid"], half["objid"], half["objsubid"]))
	if found != "2" {
		t.Errorf("%s rows of pg_locks have the halves %v", found, half)
	}

	if rows := table(t, conn, guideBlock(t, "pg_terminate_backend")); len(rows) != 1 || rows[0]["pid"] != holderPID {
		t.Errorf("ended %v, want the holder alone", rows)
	}
	if err := holder.Ping(t.Context()); err == nil {
		t.Error("the holder is still connected")
	}
}

// What the guide says of LIMIT: one query locks what it returns, the other all it
// meets.
func TestGuideLimit(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPostgres(t)
	for texts, want := range map[string]int64{"WHERE pg_try_advisory_xact_lock(id)": 500, "AS chosen": 10} {
		conn := p.Connect(t)
		mustExec(t, conn, "BEGIN")
		if rows := table(t, conn, guideBlock(t, texts)); len(rows) != 10 {
			t.Errorf("%s returns %d rows, want 10", texts, len(rows))
		}
		var locks int64
		must(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()").Scan(&locks))
		if locks != want {
			t.Errorf("%s locks %d, want %d", texts, locks, want)
		}
		mustExec(t, conn, "COMMIT")
	}
}

// The statement that locks for a session is one that LockTx meets.
func TestGuideSessionLock(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPostgres(t)
	conn := p.Connect(t)
	take, give, _ := strings.Cut(guideBlock(t, "pg_advisory_unlock("), ";\n")
	rows := table(t, conn, take)
	if rows[0]["pg_try_advisory_lock"] != "true" {
		t.Fatalf("not locked: %v", rows)
	}
	tx := beginPgx(t, p.DSN(), "")
	wantHeld(t, tx.try(t.Context(), "job"), "job", nil)
	mustExec(t, conn, give)
	must(t, tx.try(t.Context(), "job"))
}

// The remedy for a snapshot that was put back: greater tokens than before.
func TestGuideNewEpoch(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPostgres(t)
	cfg, req := &pglock.Config{MaxTTL: time.Second}, request("job")
	req.TTL = time.Second
	e := engine(t, p.DSN(), cfg)
	before := spend(t, e, req, 1)
	must(t, e.Close())
	p.Exec(t, "ALTER SEQUENCE fencelock.token RESTART", guideBlock(t, "SET system = 0"))
	after := regained(t, engine(t, p.DSN(), cfg), req)
	if after.Token <= before.Token {
		t.Errorf("token %d after a snapshot was put back, %d before", after.Token, before.Token)
	}
}

// The registry gives locks their names: those of engines, and of whoever locks the
// same key by other means.
func TestGuideNames(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPostgres(t)
	e := engine(t, p.DSN(), nil)
	lease := try(t, e, request("job"))
	tx := beginPgx(t, p.DSN(), "")
	done := make(chan error, 1)
	go func() { done <- tx.lock(soon(t, patience), "job") }()
	awaitWaiters(t, p, 1)
	conn, all := p.Connect(t), guideBlock(t, "client_pid")
	var rows []map[string]string
	for start := time.Now(); time.Since(start) < patience; time.Sleep(10 * time.Millisecond) { // notes are written later
		if rows = table(t, conn, all); len(rows) == 2 && rows[0]["owner"] == lease.Owner {
			break
		}
	}
	if len(rows) != 2 {
		t.Fatalf("%d rows, want 2: %v", len(rows), rows)
	}
	want := map[string]string{"name": "job", "granted": "true", "owner": lease.Owner, "token": fmt.Sprint(lease.Token), "host": "here", "client_pid": "7"}
	for column, value := range want {
		if rows[0][column] != value {
			t.Errorf("%s of the holder is %s, want %s", column, rows[0][column], value)
		}
	}
	if w := rows[1]; w["name"] != "job" || w["granted"] != "false" || w["owner"] != "<nil>" {
		t.Errorf("the waiter is %v", w)
	}
	if last := table(t, conn, guideBlock(t, "last_token")); last[0]["last_token"] != fmt.Sprint(lease.Token) {
		t.Errorf("the last token is %v, want %d", last, lease.Token)
	}
	must(t, e.Release(t.Context(), lease), <-done)
}
