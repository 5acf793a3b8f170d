//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// TestNULInANote: what the server cannot store is escaped, for that lock alone.
func TestNULInANote(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e := engine(t, pg.DSN(), nil)
	req := request("a")
	req.Note = "before\x00after\xff"
	l := try(t, e, req)
	if held := refused(t, engine(t, pg.DSN(), nil), request("a")); held.Note != `before\x00after`+"\uFFFD" {
		t.Errorf("the note is %q", held.Note)
	}
	release(t, e, l)
}

// TestNULInAReason: the holder is told all the same.
func TestNULInAReason(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e, other := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	const reason, want = "before\x00after\xff", `before\x00after` + "\uFFFD"
	for range 2 {
		req, lost := watched(request("a"))
		l := regained(t, e, req)
		if _, err := other.BreakOwner(t.Context(), "a", l.Owner, reason); err != nil {
			t.Fatal(err)
		}
		if cause := await(t, lost, "the loss"); !strings.Contains(cause.Error(), want) {
			t.Errorf("%q was told of as %q", reason, cause)
		}
		regained(t, e, req)
		if _, err := other.Break(t.Context(), "a", reason); err != nil {
			t.Fatal(err)
		}
		if cause := await(t, lost, "the loss"); !strings.Contains(cause.Error(), want) {
			t.Errorf("%q was told of as %q", reason, cause)
		}
	}
}

// TestPrefixesThatAreNoText: a prefix may end within a character, or be nothing that a name begins
// with.
func TestPrefixesThatAreNoText(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e := engine(t, pg.DSN(), nil)
	for _, name := range []string{"größe", "grün", "grob"} {
		try(t, e, request(name))
	}
	for prefix, want := range map[string]int{"gr": 3, "gr\xc3": 2, "gr\xc3\xb6": 1, "gr\xff": 0, "gr\x00": 0, "\x00": 0} {
		if got, err := e.List(t.Context(), driver.Query{Prefix: prefix}); err != nil || len(got) != want {
			t.Errorf("%q: %d names, %v; want %d", prefix, len(got), err, want)
		}
	}
}

// TestManyTTLs: they share a few connections, and each keeps its own.
func TestManyTTLs(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	e := engine(t, pg.DSN(), nil)
	for i := range 60 {
		req := request(fmt.Sprint("lock", i))
		req.TTL = 3*time.Second + time.Duration(i)*200*time.Millisecond
		g, err := e.Acquire(t.Context(), req)
		if err != nil || g.TTL != req.TTL {
			t.Errorf("a TTL of %v: %v, %v", req.TTL, g.TTL, err)
		}
	}
	if got := number(t, pg, "SELECT count(*) FROM "+activityHere+" WHERE application_name = 'fencelock'"); got > 5 {
		t.Errorf("60 TTLs have %d connections", got)
	}
}

// TestContextsShorterThanADial: a connection is opened for whoever comes next.
func TestContextsShorterThanADial(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	if err := engine(t, pg.DSN(), nil).Init(t.Context()); err != nil { // which takes its time, too
		t.Fatal(err)
	}
	cfg, err := pgxpool.ParseConfig(pg.DSN())
	if err != nil {
		t.Fatal(err)
	}
	const dial = 2 * time.Second // half of it is enough for a request, also on a slow machine
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		time.Sleep(dial)
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	e := pglock.New(pool, nil)
	defer e.Close()
	eventually(t, "a request that is shorter than a dial succeeds", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), dial/2)
		defer cancel()
		req := request("a")
		g, err := e.Acquire(ctx, req)
		if err == nil {
			release(t, e, leaseOf(req, g))
		}
		return err == nil
	})
}

// TestReadOnlyRole: a role whose transactions are read-only is refused, as psql is: it is how an
// administrator puts a primary out of service.
func TestReadOnlyRole(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	pg.Exec(t, "CREATE ROLE app LOGIN", "GRANT CREATE ON DATABASE postgres TO app", "ALTER ROLE app SET default_transaction_read_only = on")
	e := engine(t, pg.As("app"), nil)
	if _, err := e.Acquire(t.Context(), request("a")); !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "default_transaction_read_only") {
		t.Errorf("got %v, want ErrConfig", err)
	}
}

// TestManyAcquiresAtOnceLeaveRoom: requests under way count, and the application goes on.
func TestManyAcquiresAtOnceLeaveRoom(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t, "max_locks_per_transaction=10", "max_connections=20")
	e := engine(t, pg.DSN(), patient)
	try(t, e, long("first"))
	var all sync.WaitGroup
	var mu sync.Mutex // guards granted
	granted := 0
	for i := range 1000 {
		all.Go(func() {
			_, err := e.Acquire(t.Context(), long(fmt.Sprint("lock", i))) // none makes room by ending
			switch {
			case err == nil:
				mu.Lock()
				granted++
				mu.Unlock()
			case !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "max_locks_per_transaction"):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if granted > 120 || granted < 20 {
		t.Errorf("%d of 1000 requests were granted, where 120 locks fit", granted)
	}
	pg.Query(t, "SELECT count(pg_try_advisory_xact_lock(n)) FROM generate_series(1, 20) n")
}

// TestReleaseInAFullLockTable: a lock is given back although nothing fits any more.
func TestReleaseInAFullLockTable(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t, "max_locks_per_transaction=10", "max_connections=20")
	e := engine(t, pg.DSN(), nil)
	l := try(t, e, request("a"))
	hog := pg.Connect(t)
	for n := 0; ; n++ {
		if _, err := hog.Exec(t.Context(), "SELECT pg_advisory_lock($1)", n); err != nil {
			break
		}
		_ = renew(e, l) // it may take longer than the lease; where nothing fits, it cannot be written down
	}
	release(t, e, l)
	if _, err := hog.Exec(t.Context(), "SELECT pg_advisory_unlock_all()"); err != nil { // at once, as a Close is not
		t.Fatal(err)
	}
	if got := pg.Query(t, "SELECT count(*) FROM "+locksHere+" WHERE objsubid = 1 AND ((classid::bigint << 32) | objid::bigint) = hashtextextended('a', 0)"); got != "0" {
		t.Errorf("the server has %s locks of a released name", got)
	}
	other := engine(t, pg.DSN(), nil)
	eventually(t, "the name can be had", func() bool {
		_, err := other.Acquire(t.Context(), request("a"))
		return err == nil
	})
}

// TestWaitsDoNotStopVacuum: a wait holds a snapshot for a third of its TTL at most, and its
// place all the time.
func TestWaitsDoNotStopVacuum(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	holder, e, last := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	req := request("a")
	l := try(t, holder, req)
	stop := beat(t, holder, l)
	waits := request("a")
	waits.TTL = 6 * time.Second
	first := queueUp(t, t.Context(), e, waits)
	second := queueUp(t, t.Context(), last, waits)
	before := number(t, pg, "SELECT txid_current()")
	eventually(t, "no snapshot is older than the wait before the last", func() bool {
		return number(t, pg, "SELECT coalesce(min(backend_xmin::text::bigint), 9223372036854775807) FROM "+activityHere+" WHERE application_name = 'fencelock'") > before
	})
	stop()
	release(t, holder, l)
	l = granted(t, first)
	if len(second) > 0 {
		t.Error("the second waiter got in with the first")
	}
	release(t, e, l)
	release(t, last, granted(t, second))
}
