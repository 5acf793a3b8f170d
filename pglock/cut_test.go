//go:build unix

package pglock_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
)

// clipped is a connection to a server that receives only so many bytes more when it is told to, and
// then neither anything else nor the end.
type clipped struct {
	net.Conn
	left *atomic.Int64 // below zero while it receives all
}

func (c *clipped) Write(b []byte) (int, error) {
	for {
		left := c.left.Load()
		if left < 0 {
			return c.Conn.Write(b)
		}
		n := min(left, int64(len(b)))
		if c.left.CompareAndSwap(left, left-n) {
			_, err := c.Conn.Write(b[:n])
			return len(b), err
		}
	}
}

// Close leaves the connection open while it is clipped: the server sees no end.
func (c *clipped) Close() error {
	if c.left.Load() >= 0 {
		return c.SetReadDeadline(time.Unix(1, 0))
	}
	return c.Conn.Close()
}

// TestCutInsideAMessage: wherever in what it sends a holder is cut off, the server ends its
// session a TTL later. A transaction that was begun and not ended would stop its clock.
func TestCutInsideAMessage(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: the holder is partitioned from the server", verdict.Safe)
	pg := pgtest.Database(t)
	var all sync.WaitGroup
	for _, n := range []int64{0, 1, 4, 5, 10, 20, 40, 100} {
		var left atomic.Int64
		left.Store(-1)
		cfg, err := pgxpool.ParseConfig(pg.DSN())
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex // guards conns
		var conns []net.Conn
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, c)
			return &clipped{c, &left}, err
		}
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		e := pglock.New(pool, nil)
		t.Cleanup(func() {
			_ = e.Close()
			pool.Close()
			mu.Lock()
			defer mu.Unlock()
			for _, c := range conns {
				_ = c.Close()
			}
		})
		req := request(fmt.Sprint("a", n))
		req.TTL = time.Second
		l := try(t, e, req)
		left.Store(n)
		for range 3 {
			all.Go(func() { _ = e.Renew(context.Background(), []driver.Lease{l}) }) // ends with the lease
		}
	}
	all.Wait()
	eventually(t, "the server has ended all sessions that were cut off", func() bool {
		return pg.Query(t, "SELECT count(*) FROM "+locksHere+" WHERE locktype = 'advisory' AND objsubid = 1") == "0"
	})
}

// TestPanicsWhereverAWaitIsTold: a Waiting that panics leaves no turn, no ticket and no lock, be
// it told of a queue in the server, of one in the process, of a quarantine, or without a
// connection to wait on.
func TestPanicsWhereverAWaitIsTold(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	cfg := &pglock.Config{MaxWaiters: 1, MaxTTL: 6 * time.Second}
	holder, e := engine(t, pg.DSN(), cfg), engine(t, pg.DSN(), cfg)
	req := request("a")
	req.TTL = cfg.MaxTTL
	second := req
	second.Name = "b"
	panics := func(where string, req driver.Request) {
		t.Helper()
		defer func() {
			if recover() != "a callback" {
				t.Errorf("%s: nobody was told", where)
			}
		}()
		req.Wait = true
		req.OnWait = func(driver.WaitInfo) { panic("a callback") }
		_, err := e.Acquire(soon(t, patience), req)
		t.Errorf("%s: %v", where, err)
	}
	a, b := try(t, holder, req), try(t, holder, second)
	stop := beat(t, holder, a, b)
	panics("in the server's queue", req)
	waiter := queueUp(t, t.Context(), e, req)
	panics("behind one of the process", req)
	panics("without a connection", second)
	stop()
	release(t, holder, a)
	release(t, holder, b)
	release(t, e, granted(t, waiter))
	letGo(t, e, regained(t, e, second))
	pg.Kill(t)
	pg.Restart(t)
	panics("in a quarantine", req)
	letGo(t, e, regained(t, e, req))
	letGo(t, holder, regained(t, holder, req))
	eventually(t, "no ticket and no lock is left", func() bool {
		return pg.Query(t, "SELECT (SELECT count(*) FROM fencelock.queued) + (SELECT count(*) FROM "+locksHere+" WHERE objsubid = 1 AND locktype = 'advisory')") == "0"
	})
}

// lossy are requests of which the server's answer is lost.
func lossy() map[string]driver.Request {
	return map[string]driver.Request{"exclusive": long(""), "shared": shared(long(""), 0), "limited": shared(long(""), 1)}
}

// hasOnce fails the test unless a wait was granted, and has taken one seat.
func hasOnce(t *testing.T, pg *pgtest.Postgres, w wait) {
	t.Helper()
	if w.err != nil {
		t.Errorf("%q: %v", w.lease.Name, w.err)
		return
	}
	if err := renew(w.engine, w.lease); err != nil {
		t.Errorf("%q: %v", w.lease.Name, err)
	}
	if got := pg.Query(t, "SELECT count(*) FROM fencelock.sharer WHERE name = $1", w.lease.Name); w.lease.Name == "limited" && got != "1" {
		t.Errorf("%q: one holder has %s seats", w.lease.Name, got)
	}
	refused(t, engine(t, pg.DSN(), patient), long(w.lease.Name))
	release(t, w.engine, w.lease)
}

// TestLostAnswerOfAnAcquire: the server grants, and the connection ends before it can say so. The
// request asks once more, and what the first try left is not in its way.
func TestLostAnswerOfAnAcquire(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: an answer is lost", verdict.Safe)
	pg := pgtest.Database(t)
	proxy, dsn := throughProxy(t, pg)
	try(t, engine(t, pg.DSN(), patient), long("the schema is there"))
	for name, req := range lossy() {
		e := engine(t, dsn, patient)
		req.Name, req.Wait = name, true
		cut := proxy.SwallowReply(name)
		g, err := e.Acquire(soon(t, patience/2), req)
		await(t, cut, "the cut")
		hasOnce(t, pg, wait{e, leaseOf(req, g), err})
	}
}

// TestLostAnswerOfAWait: the same for a grant that ends a wait.
func TestLostAnswerOfAWait(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "PostgreSQL: an answer is lost", verdict.Safe)
	pg := pgtest.Database(t)
	proxy, dsn := throughProxy(t, pg)
	other := engine(t, pg.DSN(), patient)
	for name, req := range lossy() {
		e := engine(t, dsn, patient)
		req.Name = name
		first := try(t, other, long(name))
		done := queueUp(t, soon(t, patience/2), e, req)
		eventually(t, "it waits in the server", func() bool { return backends(t, pg, "wait_event = 'advisory'") == "1" })
		proxy.Drop(faults.ToClient)
		release(t, other, first)
		eventually(t, "the server has granted", func() bool {
			return pg.Query(t, `SELECT (SELECT count(*) FROM fencelock.held WHERE name = $1 AND owner IS NOT NULL)
				+ (SELECT count(*) FROM fencelock.sharer WHERE name = $1)`, name) == "1"
		})
		if err := proxy.Heal(); err != nil {
			t.Fatal(err)
		}
		proxy.Reset()
		hasOnce(t, pg, await(t, done, "a grant"))
	}
}
