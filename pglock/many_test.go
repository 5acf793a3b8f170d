//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/pglock"
)

// TestThousandsOfLocksOnTwoConnections: with FENCELOCK_SLOW set, ten thousand.
func TestThousandsOfLocksOnTwoConnections(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t, "max_locks_per_transaction=256")
	e := engine(t, pg.DSN(), &pglock.Config{MaxTTL: time.Hour})
	n := 2_000
	if os.Getenv("FENCELOCK_SLOW") != "" {
		n = 10_000
	}
	begun := time.Now()
	leases := make([]driver.Lease, n)
	var all sync.WaitGroup
	for w := range 16 {
		all.Go(func() {
			for i := w; i < n; i += 16 {
				req := request(fmt.Sprint("lock", i))
				req.TTL = time.Hour
				g, err := e.Acquire(t.Context(), req)
				if err != nil {
					t.Error(err)
					return
				}
				leases[i] = leaseOf(req, g)
			}
		})
	}
	all.Wait()
	if got := backends(t, pg, "true"); got != "1" && got != "2" {
		t.Errorf("%s connections hold %d locks", got, n)
	}
	t.Logf("%d locks were acquired in %v", n, time.Since(begun))
	begun = time.Now()
	for i, err := range e.Renew(t.Context(), leases) {
		if err != nil {
			t.Fatalf("renewing lock %d: %v", i, err)
		}
	}
	t.Logf("%d locks were renewed in %v", n, time.Since(begun))
	eventually(t, "all holders are written down", func() bool {
		return pg.Query(t, "SELECT count(*) FROM fencelock.held WHERE owner IS NOT NULL") == fmt.Sprint(n)
	})
	begun = time.Now()
	for _, l := range leases {
		all.Go(func() { release(t, e, l) })
	}
	all.Wait()
	t.Logf("%d locks were released in %v", n, time.Since(begun))
	eventually(t, "no holder is left in the table", func() bool {
		return pg.Query(t, "SELECT count(*) FROM fencelock.held WHERE owner IS NOT NULL") == "0"
	})
	if got := pg.Query(t, "SELECT count(*) FROM "+locksHere+" WHERE locktype = 'advisory' AND objsubid = 1"); got != "0" {
		t.Errorf("%s locks are left in the server", got)
	}
}

// TestListStartsNoProcess: the server answers in the process that was asked. Others that would help
// it take longer to start than the answer.
func TestListStartsNoProcess(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t, "log_min_messages=debug1")
	e := engine(t, pg.DSN(), nil)
	try(t, e, request("a"))
	if list, err := e.List(t.Context(), driver.Query{}); err != nil || len(list) != 1 {
		t.Fatalf("List: %+v, %v", list, err)
	}
	log, err := os.ReadFile(filepath.Join(pg.Dir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(log), "parallel worker") {
		t.Error("the server has started another process for a List")
	}
}

// TestListOnAServerWithManyLocks: what a List costs grows with the locks that there are, and not
// with their square. No test of this package is beside it: a statement of a List may take 2.5 s.
func TestListOnAServerWithManyLocks(t *testing.T) {
	pg := pgtest.StartPostgres(t, "max_locks_per_transaction=256")
	e := engine(t, pg.DSN(), nil)
	try(t, e, request("a"))
	mustExec(t, pg.Connect(t), "SELECT count(pg_advisory_lock(n)) FROM generate_series(1, 20000) n")
	for end := time.Now().Add(time.Minute); ; { // on a busy machine one try may take longer than a list may
		begun := time.Now()
		list, err := e.List(t.Context(), driver.Query{})
		if errors.Is(err, driver.ErrUnavailable) && begun.Before(end) {
			continue
		}
		if err != nil || len(list) != 1 {
			t.Errorf("List: %+v, %v", list, err)
		}
		t.Logf("a List beside 20,000 locks took %v", time.Since(begun))
		return
	}
}

func TestLockTableIsNotFilled(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t, "max_locks_per_transaction=10", "max_connections=20")
	e := engine(t, pg.DSN(), patient)
	for i := range 1000 {
		_, err := e.Acquire(t.Context(), long(fmt.Sprint("lock", i))) // none makes room by ending
		if err == nil {
			continue
		}
		if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "max_locks_per_transaction") {
			t.Errorf("lock %d: %v", i, err)
		}
		verdict.Is(t, "PostgreSQL: the lock table is nearly full", verdict.Refused, verdict.OfError(err))
		if i < 100 || i > 120 { // others have some
			t.Errorf("lock %d of 200 was refused, want one of the last before lock 120", i)
		}
		pg.Query(t, "SELECT pg_try_advisory_lock(1)") // others still find room
		return
	}
	t.Error("a thousand locks fit into a table for 200")
}

func TestManyGoroutinesWaitOnOneConnection(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	holder, e := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	req := request("busy")
	l := try(t, holder, req)
	stop := beat(t, holder, l)
	var waits []<-chan wait
	for range 200 {
		waits = append(waits, queueUp(t, t.Context(), e, req))
	}
	if got := backends(t, pg, "wait_event_type = 'Lock'"); got != "1" {
		t.Errorf("%s connections wait", got)
	}
	if got := backends(t, pg, "true"); len(got) > 1 || got > "5" {
		t.Errorf("two engines have %s connections", got)
	}
	begun := time.Now()
	stop()
	release(t, holder, l)
	last := l.Token
	for i, w := range waits {
		l := granted(t, w)
		if l.Token <= last {
			t.Errorf("waiter %d has token %d after %d", i, l.Token, last)
		}
		last = l.Token
		release(t, e, l)
	}
	t.Logf("%v for each of 200 goroutines", time.Since(begun)/200)
}

// TestMoreWaitsThanConnections: requests beyond the connections for waiters have a place in
// the queue like any other.
func TestMoreWaitsThanConnections(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	holder, e := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), &pglock.Config{MaxWaiters: 1})
	first, second := try(t, holder, request("first")), try(t, holder, request("second"))
	w := queueUp(t, t.Context(), e, request("first"))
	crowded := queueUp(t, t.Context(), e, request("second"))
	gives, cancel := context.WithCancel(t.Context())
	other := engine(t, pg.DSN(), nil)
	quits := queueUp(t, gives, engine(t, pg.DSN(), &pglock.Config{MaxWaiters: 1}), request("second"))
	later := queueUp(t, t.Context(), other, request("second"))
	cancel()
	if err := await(t, quits, "the end of a wait").err; !errors.Is(err, driver.ErrHeld) {
		t.Error(err)
	}
	release(t, holder, second)
	l := granted(t, crowded)
	if len(later) > 0 {
		t.Error("a later waiter passed one without a connection")
	}
	release(t, e, l)
	release(t, other, granted(t, later))
	release(t, holder, first)
	release(t, e, granted(t, w))
}

// TestWhoIsNextForASeatLooksInTheServer: it has no lock there meanwhile that anybody could wait for,
// and gets a seat that comes free, and one that comes with a new limit.
func TestWhoIsNextForASeatLooksInTheServer(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	holder, sharer := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	req := shared(request("seats"), 1)
	l := try(t, holder, req)
	for _, open := range []func() error{
		func() error { return holder.Release(t.Context(), l) },
		func() error { return holder.Resize(t.Context(), "seats", 2) },
	} {
		w := queueUp(t, t.Context(), sharer, req)
		eventually(t, "the request looks, and has no lock", func() bool {
			return pg.Query(t, `SELECT count(*) FROM pg_stat_activity a WHERE datname = current_database() AND wait_event = 'PgSleep' AND NOT EXISTS (SELECT FROM pg_locks l
				WHERE l.pid = a.pid AND l.locktype = 'advisory' AND (l.objsubid = 1 OR l.classid = 1717923428))`) == "1"
		})
		if err := open(); err != nil {
			t.Fatal(err)
		}
		l = granted(t, w)
	}
}
