//go:build unix

package pglock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// TestBreakIsHeardAfterTheOwnConnectionEnded: the connection that receives a break is
// opened again by the next renewal.
func TestBreakIsHeardAfterTheOwnConnectionEnded(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e := engine(t, pg.DSN(), nil)
	req, lost := watched(request("a"))
	l := try(t, e, req)
	eventually(t, "the own connection is open", func() bool { return backends(t, pg, "true") == "2" })
	locks := fmt.Sprint("pid <> ", holder(t, pg, "a"))
	pg.Exec(t, "SELECT pg_terminate_backend(pid) FROM "+activityHere+" WHERE application_name = 'fencelock' AND "+locks)
	eventually(t, "there is another connection", func() bool {
		if err := renew(e, l); err != nil {
			t.Fatal(err)
		}
		return backends(t, pg, locks) == "1"
	})
	eventually(t, "it hears a break", func() bool {
		_, _ = engine(t, pg.DSN(), nil).Break(t.Context(), "a", "again")
		return len(lost) == 1
	})
}

// TestNotificationsDoNotKeepAFrozenHolder: the server ends the session of a frozen
// holder also when there is more to tell it than its socket takes.
func TestNotificationsDoNotKeepAFrozenHolder(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	p := proc.Start(t, "postgres", fmt.Sprintf("postgres://postgres@/postgres?host=%s&port=%d", pg.Dir(), pg.Port()))
	req := request("a")
	req.TTL = time.Second
	try(t, p, req)
	p.Freeze(t)
	for i := range 3 {
		pg.Exec(t, fmt.Sprintf("SELECT pg_notify('fencelock', repeat('x', 7000) || %d || '-' || i) FROM generate_series(1, 300) i", i))
	}
	eventually(t, "the frozen holder's lock is free", func() bool {
		return pg.Query(t, "SELECT pg_try_advisory_xact_lock(hashtextextended('a', 0))") == "true"
	})
	p.Thaw(t)
}

// TestNothingPilesUp: connections for TTLs that nobody uses any more are forgotten,
// and what processes left behind when they died is removed by others.
func TestNothingPilesUp(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e := engine(t, pg.DSN(), &pglock.Config{MaxTTL: 2 * time.Second})
	for i := range 5 {
		req := request("a")
		req.TTL = 500*time.Millisecond + time.Duration(i)*time.Millisecond
		spend(t, e, req, 1)
	}
	eventually(t, "the engine has forgotten the connections", func() bool { return e.LockSessions() == 0 })
	pg.Exec(t, "INSERT INTO fencelock.queued VALUES ('dead', 1, 'a', 1, false, 77777, now(), '', 0, '', 0, 1)",
		"INSERT INTO fencelock.sharer VALUES ('gone', 1, 'a', 1, 1, 77777, now(), '', 0, '', 0, 1, now() - interval '1 hour', 1)",
		"INSERT INTO fencelock.minimum VALUES (1, 'a', now() - interval '1 hour')")
	other := engine(t, pg.DSN(), nil)
	release(t, other, try(t, other, request("b")))
	eventually(t, "the rows of the dead are gone", func() bool {
		return pg.Query(t, `SELECT (SELECT count(*) FROM fencelock.queued) + (SELECT count(*) FROM fencelock.sharer)
			+ (SELECT count(*) FROM fencelock.minimum)`) == "0"
	})
}
