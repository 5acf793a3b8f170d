//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// deadFrom is the id of the first session that leaveDead makes up.
const deadFrom = 1000001

// leaveDead writes the rows of n sessions that ended an hour ago: each held a name, shared one, and
// waited for one. A thousand of them waited for the name "a".
func leaveDead(t testing.TB, pg *pgtest.Postgres, n int) {
	t.Helper()
	sessions := fmt.Sprintf(" FROM generate_series(%d, %d) s", deadFrom, deadFrom+n-1)
	pg.Exec(t,
		"INSERT INTO fencelock.beat SELECT s, 1, now() - interval '1 hour', 0"+sessions,
		"INSERT INTO fencelock.held SELECT s, 'h' || s, 'h' || s, s, 30000, s, now() - interval '1 hour', '', 1, ''"+sessions,
		"INSERT INTO fencelock.sharer SELECT 's' || s, -s / 100, 's' || s / 100, s, 30000, s, now() - interval '1 hour', '', 1, '', 0, 1"+sessions,
		"INSERT INTO fencelock.queued SELECT 'q' || s, CASE WHEN s < "+strconv.Itoa(deadFrom+1000)+
			" THEN hashtextextended('a', 0) ELSE s END, 'q' || s, s - 2000000, s % 2 = 0, s, now() - interval '1 hour', '', 1, '', 0, 1"+sessions)
}

const deadSQL = `SELECT (SELECT count(*) FROM fencelock.beat WHERE session > 1000000) + (SELECT count(*) FROM fencelock.held WHERE session > 1000000)
	+ (SELECT count(*) FROM fencelock.sharer WHERE session > 1000000) + (SELECT count(*) FROM fencelock.queued WHERE session > 1000000)`

// application runs transactions that lock many tables until ctx ends, and fails the test if the
// server refuses one. It returns how many there were.
func application(ctx context.Context, t *testing.T, conn *pgx.Conn) (n int) {
	var tables []string
	for i := range 30 { // more than a backend locks without the lock table
		tables = append(tables, fmt.Sprint("public.app", i))
		mustExec(t, conn, "CREATE TABLE "+tables[i]+" (x int)")
	}
	for ; ctx.Err() == nil; n++ {
		if _, err := conn.Exec(context.WithoutCancel(ctx), "LOCK TABLE "+strings.Join(tables, ", ")+" IN ROW EXCLUSIVE MODE; INSERT INTO public.app1 VALUES (1)"); err != nil {
			t.Errorf("an application that uses no locks: %v", err)
			return n
		}
	}
	return n
}

// mostLocks samples the advisory locks of the server until ctx ends.
func mostLocks(ctx context.Context, t *testing.T, pg *pgtest.Postgres) (most int) {
	conn := pg.Connect(t)
	for ctx.Err() == nil {
		var n int
		if err := conn.QueryRow(context.WithoutCancel(ctx), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").Scan(&n); err != nil {
			t.Error(err)
			return most
		}
		most = max(most, n)
		time.Sleep(time.Millisecond)
	}
	return most
}

// TestThousandsOfDeadSessions: their rows go, a page at a time. Applications find room in the
// server's lock table, and requests for a name behind dead waiters are answered. With
// FENCELOCK_SLOW set, there are 100,000.
func TestThousandsOfDeadSessions(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t, "max_locks_per_transaction=10", "max_connections=20")
	must(t, engine(t, pg.DSN(), nil).Init(t.Context()))
	n, limit := 3000, 2*time.Minute
	if os.Getenv("FENCELOCK_SLOW") != "" {
		n, limit = 100_000, 10*time.Minute
	}
	leaveDead(t, pg, n)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	inserts, locks := make(chan int, 1), make(chan int, 1)
	conn := pg.Connect(t)
	go func() { inserts <- application(ctx, t, conn) }() // ends with ctx
	go func() { locks <- mostLocks(ctx, t, pg) }()       // ends with ctx
	e := engine(t, pg.DSN(), nil)
	begun := time.Now()
	g, err := e.Acquire(ctx, request("a")) // behind dead waiters; then the process is idle
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("acquired behind dead waiters in %v", time.Since(begun))
	release(t, e, leaseOf(request("a"), g))
	left := ""
	for left = pg.Query(t, deadSQL); left != "0" && ctx.Err() == nil; left = pg.Query(t, deadSQL) {
		time.Sleep(50 * time.Millisecond)
	}
	took := time.Since(begun)
	cancel()
	t.Logf("%d dead sessions: %s rows left after %v; the application made %d transactions, at most %d advisory locks", n, left, took, <-inserts, <-locks)
	if left != "0" {
		t.Errorf("%s rows of dead sessions are left", left)
	}
}

var _ = errors.Is
var _ = fencelock.New
var _ driver.Engine = (*pglock.Engine)(nil)
