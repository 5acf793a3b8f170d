//go:build unix

package pglock_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

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
		if err := conn.QueryRow(context.WithoutCancel(ctx), "SELECT count(*) FROM "+locksHere+" WHERE locktype = 'advisory'").Scan(&n); err != nil {
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

// TestSweepsLeaveTheLivingAlone: several processes sweep all the time, among the rows of dead
// sessions, while holders, sharers and waiters of living sessions come and go. No holder loses its
// row, and the tokens increase.
func TestSweepsLeaveTheLivingAlone(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	must(t, engine(t, pg.DSN(), nil).Init(t.Context()))
	leaveDead(t, pg, 2000)
	var engines []*pglock.Engine
	for range 4 {
		e := engine(t, pg.DSN(), patient)
		e.SweepEvery(10 * time.Millisecond)
		engines = append(engines, e)
	}
	exclusive, share := try(t, engines[0], long("held")), try(t, engines[1], shared(long("shared"), 1))
	waiter := queueUp(t, t.Context(), engines[2], long("held"))
	last := int64(0)
	for end, i := time.Now().Add(5*time.Second), 0; time.Now().Before(end); i++ {
		e := engines[i%len(engines)]
		l := try(t, e, long(fmt.Sprint("free", i%3)))
		if l.Token <= last {
			t.Fatalf("token %d after %d", l.Token, last)
		}
		last = l.Token
		release(t, e, l)
		refused(t, e, long("held"))
		refused(t, e, shared(long("shared"), 1))
	}
	if got := pg.Query(t, `SELECT (SELECT count(*) FROM fencelock.held WHERE owner = $1 AND seen IS NULL)
		+ (SELECT count(*) FROM fencelock.sharer WHERE owner = $2 AND seen IS NULL) + (SELECT count(*) FROM fencelock.queued WHERE session < 1000000)`,
		exclusive.Owner, share.Owner); got != "3" {
		t.Errorf("of a holder, a sharer and a waiter there are %s rows left untouched", got)
	}
	eventually(t, "the rows of the dead are gone", func() bool { return pg.Query(t, deadSQL) == "0" })
	must(t, renew(engines[0], exclusive), renew(engines[1], share))
	release(t, engines[0], exclusive)
	release(t, engines[2], granted(t, waiter))
	release(t, engines[1], share)
}

// TestSweepOfAProcessThatNeverRenews: its holds are shorter than a third of their TTL. It deletes
// the rows of sessions that end while it works.
func TestSweepOfAProcessThatNeverRenews(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e := engine(t, pg.DSN(), nil)
	e.SweepEvery(time.Second)
	release(t, e, try(t, e, request("a")))
	for range 2 {
		leaveDead(t, pg, 10)
		eventually(t, "the rows of the dead are gone", func() bool {
			release(t, e, try(t, e, request("a")))
			return pg.Query(t, deadSQL) == "0"
		})
	}
}

// TestSweepOfMinimumHolds: those that are over go, however many there are.
func TestSweepOfMinimumHolds(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	must(t, engine(t, pg.DSN(), nil).Init(t.Context()))
	pg.Exec(t, "INSERT INTO fencelock.minimum SELECT n, n, now() + (n % 10 - 9) * interval '1 hour' - interval '1 s' FROM generate_series(1, 5000) n",
		"UPDATE fencelock.minimum SET not_before = now() + interval '1 hour' WHERE key % 10 = 9")
	e := engine(t, pg.DSN(), nil)
	e.SweepEvery(time.Second)
	release(t, e, try(t, e, request("a")))
	eventually(t, "the minimum holds that are over are gone", func() bool { return pg.Query(t, "SELECT count(*) FROM fencelock.minimum") == "500" })
}

// TestSweepKeepsLeases: a dead holder's row is deleted when its lease has expired, and not earlier.
func TestSweepKeepsLeases(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	must(t, engine(t, pg.DSN(), nil).Init(t.Context()))
	for _, sql := range []string{
		"INSERT INTO fencelock.beat VALUES (%[1]d, 1, now() - interval '2 minutes', %[2]d)",
		"INSERT INTO fencelock.held SELECT %[1]d, 'h', 'h', 1, %[3]d, %[1]d, now() - interval '1 hour', '', 1, ''",
		"INSERT INTO fencelock.sharer SELECT 's', %[1]d, 's', 1, %[3]d, %[1]d, now() - interval '1 hour', '', 1, '', 0, 1",
	} {
		client := time.Now().Add(-2 * time.Minute).UnixMicro()
		pg.Exec(t, fmt.Sprintf(sql, deadFrom, client, 125000), fmt.Sprintf(sql, deadFrom+1, client, 3600000))
	}
	pg.Exec(t, "UPDATE fencelock.held SET client = 0", "UPDATE fencelock.sharer SET client = 0")
	begun := time.Now()
	e := engine(t, pg.DSN(), nil)
	e.SweepEvery(100 * time.Millisecond)
	release(t, e, try(t, e, request("a")))
	eventually(t, "the rows of expired leases are gone", func() bool { return pg.Query(t, deadSQL) == "3" })
	if d := time.Since(begun); d < 3*time.Second {
		t.Errorf("a lease that ran for 5 s more was gone after %v", d)
	}
	time.Sleep(time.Second)
	if got := pg.Query(t, deadSQL); got != "3" {
		t.Errorf("of a lease that runs, %s of 3 rows are left", got)
	}
}

// TestWaitsThatAreGivenUpLeaveNothing: no row of the request, and none of its session.
func TestWaitsThatAreGivenUpLeaveNothing(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	holds, e := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	l := try(t, holds, request("a"))
	release(t, e, try(t, e, request("b")))
	rows := func() string {
		return pg.Query(t, "SELECT (SELECT count(*) FROM fencelock.beat) + (SELECT count(*) FROM fencelock.queued)")
	}
	eventually(t, "both processes have two connections", func() bool { return rows() == "4" })
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		w := queueUp(t, ctx, e, request("a"))
		cancel()
		await(t, w, "the end of the wait")
	}
	if got := rows(); got != "4" {
		t.Errorf("%s rows after five waits that were given up, 4 before", got)
	}
	release(t, holds, l)
	must(t, e.Close(), holds.Close())
	if got := rows(); got != "0" {
		t.Errorf("%s rows after both engines were closed", got)
	}
}

// TestSweepMeetsAnother: a pass goes on after another client has swept.
func TestSweepMeetsAnother(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	must(t, engine(t, pg.DSN(), nil).Init(t.Context()))
	leaveDead(t, pg, 500)
	other := pg.Connect(t)
	mustExec(t, other, "SELECT pg_advisory_lock(1717923427, 1)") // as sweep_page does
	e := engine(t, pg.DSN(), nil)
	e.SweepEvery(time.Hour)
	release(t, e, try(t, e, request("b")))
	time.Sleep(3 * time.Second) // a pass begins within one
	mustExec(t, other, "SELECT pg_advisory_unlock(1717923427, 1)")
	eventually(t, "the end of the pass", func() bool { return pg.Query(t, deadSQL) == "0" })
}
