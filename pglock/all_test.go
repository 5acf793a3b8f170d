//go:build unix

package pglock_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// requests asks for several names in the way of one request.
func requests(like driver.Request, names ...string) []driver.Request {
	reqs := make([]driver.Request, len(names))
	for i, name := range names {
		reqs[i] = like
		reqs[i].Name = name
	}
	return reqs
}

// tryAll acquires all at once, or fails the test.
func tryAll(t testing.TB, e driver.AllAcquirer, reqs []driver.Request) []driver.Lease {
	t.Helper()
	grants, err := e.AcquireAll(t.Context(), reqs)
	if err != nil || len(grants) != len(reqs) {
		t.Fatalf("acquire all: %d grants, %v", len(grants), err)
	}
	leases := make([]driver.Lease, len(reqs))
	for i, g := range grants {
		leases[i] = leaseOf(reqs[i], g)
	}
	return leases
}

// noneOf fails the test unless acquiring all is refused because of a name, and
// leaves no lock behind that was not there before.
func noneOf(t *testing.T, pg *pgtest.Postgres, e driver.AllAcquirer, reqs []driver.Request, name string) {
	t.Helper()
	locks := func() string {
		return pg.Query(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1")
	}
	before := locks()
	_, err := e.AcquireAll(t.Context(), reqs)
	if held, ok := errors.AsType[*driver.HeldError](err); !ok || held.Name != name {
		t.Errorf("acquire all: %v; want %q in the way", err, name)
	}
	if after := locks(); after != before {
		t.Errorf("%s locks, %s before", after, before)
	}
}

func TestAllOrNone(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e, other := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	names := requests(request(""), "c", "a", "b")
	b := try(t, other, request("b"))
	noneOf(t, pg, e, names, "b")
	release(t, other, b)
	for _, l := range tryAll(t, other, names) {
		if l.Token <= b.Token {
			t.Errorf("%q has token %d after %d", l.Name, l.Token, b.Token)
		}
		refused(t, e, request(l.Name))
		release(t, other, l)
	}
	c := try(t, e, request("c"))
	noneOf(t, pg, e, names, "c") // by this very process
	release(t, e, c)

	w := request("a")
	a := try(t, e, w)
	waiter := queueUp(t, t.Context(), other, w)
	release(t, e, a)
	a = granted(t, waiter)
	noneOf(t, pg, e, names, "a")
	release(t, other, a)

	least := request("a")
	least.MinHold = time.Hour
	release(t, other, try(t, other, least))
	noneOf(t, pg, e, names, "a")
}

func TestAllTogetherRenewedAndLost(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e, other := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	reqs := requests(request(""), "a", "b", "c")
	lost := make(chan error, len(reqs))
	for i := range reqs {
		reqs[i].OnLost = func(cause error) { lost <- cause }
	}
	leases := tryAll(t, e, reqs)
	for _, err := range e.Renew(t.Context(), leases) {
		if err != nil {
			t.Error(err)
		}
	}
	pg.Terminate(t, holder(t, pg, "a"))
	for range reqs {
		if cause := await(t, lost, "the loss"); !errors.Is(cause, driver.ErrLost) {
			t.Error(cause)
		}
	}
	for _, err := range e.Renew(t.Context(), leases) {
		if !errors.Is(err, driver.ErrNotHeld) {
			t.Error(err)
		}
	}
	eventually(t, "the server has freed the locks", func() bool {
		return pg.Query(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1") == "0"
	})
	noneOf(t, pg, other, requests(request(""), "b", "free"), "b") // vanished, and closed until its lease is over
}

func TestAllShared(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e, other := engine(t, pg.DSN(), nil), engine(t, pg.DSN(), nil)
	first := tryAll(t, e, requests(shared(request(""), 0), "a", "b"))
	grants, err := other.AcquireAll(t.Context(), requests(shared(request(""), 0), "b", "c"))
	if err != nil {
		t.Fatal(err)
	}
	if grants[0].Floor != first[1].Token || grants[1].Floor != grants[1].Token || grants[0].Token <= first[1].Token {
		t.Errorf("%+v beside %+v", grants, first)
	}
	if _, err := e.AcquireAll(t.Context(), requests(shared(request(""), 0), "c", "a")); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a name that the process shares already: %v", err)
	}
	if _, err := e.AcquireAll(t.Context(), requests(weighing("", 2, 2), "d", "c")); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a limit beside none: %v", err)
	}
	noneOf(t, pg, e, requests(request(""), "c", "d"), "c")
	tryAll(t, e, requests(weighing("", 3, 2), "d", "f"))
	noneOf(t, pg, other, requests(weighing("", 3, 2), "x", "f", "y"), "f")
	if got := pg.Query(t, "SELECT count(*) FROM fencelock.sharer WHERE name IN ('x', 'y')"); got != "0" {
		t.Errorf("%s rows are left of a refused bundle", got)
	}
}

// TestAllRefusedTakesNoRoom: a set with a name that the process shares already counts no locks,
// however often it is asked for.
func TestAllRefusedTakesNoRoom(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), nil)
	like := shared(request(""), 0)
	names := []string{"a", "b", "c", "d", "e"}
	for _, name := range names {
		req := like
		req.Name = name
		l := try(t, e, req)
		if _, err := e.AcquireAll(t.Context(), requests(like, names...)); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("beside %q: %v", name, err)
		}
		if got := e.Room(); got != 1 {
			t.Errorf("beside %q the engine counts %d locks, and holds one", name, got)
		}
		release(t, e, l)
	}
}

// TestAllAfterAnError: what the server locked before a statement failed is unlocked.
func TestAllAfterAnError(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), nil)
	mine := try(t, e, request("mine"))
	reqs := requests(shared(request(""), 0), "a", "b", "c", "d")
	reqs[1].PID = 1 << 40 // is no integer to the server
	if _, err := e.AcquireAll(t.Context(), reqs); !errors.Is(err, driver.ErrUnavailable) {
		t.Error(err)
	}
	if got := pg.Query(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1"); got != "1" {
		t.Errorf("%s locks instead of one", got)
	}
	tryAll(t, e, requests(request(""), "a", "b", "c", "d"))
	release(t, e, mine)
}

func TestAllOfOneKey(t *testing.T) {
	t.Parallel()
	e := engine(t, "postgres://nobody@127.0.0.1:1/none?sslmode=disable", nil)
	reqs := requests(request(""), "a", "b", pglock.Key(pglock.HashText("a")))
	if _, err := e.AcquireAll(t.Context(), reqs); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
	for _, wrong := range []func(*driver.Request){
		func(r *driver.Request) { r.MinHold = 1 },
		func(r *driver.Request) { r.Wait = true },
		func(r *driver.Request) { r.TTL /= 2 },
	} {
		reqs := requests(request(""), "a", "b")
		wrong(&reqs[1])
		if _, err := e.AcquireAll(t.Context(), reqs); !errors.Is(err, driver.ErrUnsupported) {
			t.Error(err)
		}
	}
}

// TestAllWithContextsThatEndAnyTime: neither locks nor turns are left behind.
func TestAllWithContextsThatEndAnyTime(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), nil)
	mine := try(t, e, request("mine"))
	for i := range 200 {
		like := request("")
		if i%2 == 0 {
			like = shared(like, i%4)
		}
		reqs := requests(like, "a", "b", "c")
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*5*time.Microsecond)
		grants, err := e.AcquireAll(ctx, reqs)
		cancel()
		if err == nil {
			for i, g := range grants {
				release(t, e, leaseOf(reqs[i], g))
			}
		}
	}
	eventually(t, "all are free", func() bool {
		return pg.Query(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1") == "1"
	})
	tryAll(t, e, requests(request(""), "a", "b", "c"))
	release(t, e, mine)
}

// tap counts the messages on each connection.
type tap struct {
	mu    sync.Mutex // guards sent, asked
	sent  []int
	asked int // the connection that was asked for names together
}

func (p *tap) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = append(p.sent, 0)
	return tapped{conn, p, len(p.sent) - 1}, err
}

// counts returns how many messages were sent on each connection.
func (p *tap) counts() ([]int, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.sent), p.asked
}

type tapped struct {
	net.Conn
	tap *tap
	id  int
}

func (c tapped) Write(b []byte) (int, error) {
	c.tap.mu.Lock()
	c.tap.sent[c.id]++
	if bytes.Contains(b, []byte(`"owner"`)) {
		c.tap.asked = c.id
	}
	c.tap.mu.Unlock()
	return c.Conn.Write(b)
}

// TestAllInOneRoundTrip: free names cost one message to the server, whose answer
// has their tokens.
func TestAllInOneRoundTrip(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	cfg, err := pgxpool.ParseConfig(pg.DSN())
	if err != nil {
		t.Fatal(err)
	}
	var p tap
	cfg.ConnConfig.DialFunc = p.dial
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	e := pglock.New(pool, nil)
	defer e.Close()
	release(t, e, try(t, e, request("warm"))) // its connections are open
	for _, like := range []driver.Request{request(""), shared(request(""), 0), weighing("", 3, 2)} {
		like.TTL = request("").TTL
		for range 3 {
			before, _ := p.counts()
			leases := tryAll(t, e, requests(like, "a", "b", "c", "d", "e"))
			after, asked := p.counts()
			if n := after[asked] - before[asked]; n != 1 {
				t.Errorf("%d messages for %+v", n, like)
			}
			for _, l := range leases {
				release(t, e, l)
			}
			// Work is left after a release, which must not be counted next.
			eventually(t, "nothing is left", func() bool {
				return pg.Query(t, "SELECT (SELECT count(*) FROM fencelock.held WHERE owner IS NOT NULL) + (SELECT count(*) FROM fencelock.sharer)") == "0"
			})
			time.Sleep(50 * time.Millisecond)
		}
	}
}
