package redislock_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redislock"
)

// lineUp queues n waiters of the engines in turn.
func (s scene) lineUp(n int, req driver.Request, engines ...*redislock.Engine) (ws []*call) {
	s.Helper()
	for i := range n {
		ws = append(ws, s.queue(engines[i%len(engines)], req))
	}
	return ws
}

// inOrder fails the test unless the waiters get in one after the other.
func (s scene) inOrder(ws ...*call) {
	s.Helper()
	last := int64(0)
	for i, w := range ws {
		h := w.granted()
		for _, later := range ws[i+1:] {
			if later.answered() && time.Since(h.Sent) < h.TTL { // on a slow machine a short lease is over
				s.Fatalf("a later waiter got in before waiter %d of %d was done: %v", i+1, len(ws), later.err)
			}
		}
		if h.Token <= last {
			s.Fatalf("waiter %d of %d got in too late: token %d after %d", i+1, len(ws), h.Token, last)
		}
		last = h.Token
		h.free()
	}
}

// inOwnOrder fails the test unless all waiters get in, one after the other, those
// of one client in their order.
func (s scene) inOwnOrder(clients ...[]*call) {
	s.Helper()
	for left := slices.Concat(clients...); len(left) > 0; {
		s.until("another waiter gets in", func() bool { return slices.ContainsFunc(left, (*call).answered) })
		h := left[slices.IndexFunc(left, (*call).answered)].granted()
		left = slices.DeleteFunc(left, (*call).answered)
		for i, ws := range clients {
			if slices.ContainsFunc(ws, (*call).answered) {
				if !ws[0].answered() {
					s.Fatalf("of client %d, a later waiter got in first", i)
				}
				clients[i] = ws[1:]
			}
		}
		h.free()
	}
}

// TestConnectionsAreKilled: the server closes every subscription, or every other
// connection, under a queue. Whoever cannot be told is passed over and keeps its
// place; nobody is forgotten.
func TestConnectionsAreKilled(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"pubsub", "normal"} {
		s := newScene(t)
		a, b, c := s.engine(nil), s.engine(nil), s.engine(nil)
		h := s.hold(a, request("n"))
		first, second := s.lineUp(3, request("n"), b), s.lineUp(3, request("n"), c)
		s.server.Do(t, "CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
		h.free()
		s.inOwnOrder(first, second)
		s.clean("n")
	}
}

// TestGrantWhileSubscriptionIsDown: what was published meanwhile is lost; the
// waiter that was passed over comes back to its place.
func TestGrantWhileSubscriptionIsDown(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, c := s.engine(nil), s.engine(nil)
	b, tap := s.tapped(nil)
	h := s.hold(a, request("n"))
	first, second := s.queue(b, request("n")), s.queue(c, request("n"))
	third := s.queue(b, request("n"))
	reconnect := tap.disconnect()
	s.until("nobody listens for b", func() bool {
		return strings.HasSuffix(s.server.Do(t, "PUBSUB", "NUMSUB", "fencelock:2:"+b.ID()), "\n0")
	})
	h.free()
	g := second.granted()
	reconnect()
	g.free()
	s.inOwnOrder([]*call{first, third})
}

// astray is a connection whose first subscription is at another server than its calls, as
// that of a client whose server was demoted, when a name leads to the new master.
type astray struct {
	redisconn.Conn
	other redisconn.Conn
	once  sync.Once
}

func (a *astray) Subscribe(ctx context.Context, channel string, ready func(), message func(string)) error {
	conn := a.Conn
	a.once.Do(func() { conn = a.other })
	return conn.Subscribe(ctx, channel, ready, message)
}

// TestSubscriptionElsewhere: a waiter that the server passes over, since nobody listens
// there, subscribes anew.
func TestSubscriptionElsewhere(t *testing.T) {
	t.Parallel()
	for _, req := range []driver.Request{brief("n"), shared(brief("n"), 2)} {
		s, old := newScene(t), newScene(t)
		b := redislock.NewConn(&astray{
			Conn:  redisconn.Rueidis(rueidisClient(t, rueidisOption(s.server.Addr()))),
			other: redisconn.Rueidis(rueidisClient(t, rueidisOption(old.server.Addr()))),
		}, patient(nil))
		t.Cleanup(func() { _ = b.Close() })
		h := s.hold(s.engine(nil), request("n"))
		w := s.queue(b, req)
		h.free()
		w.granted().free()
	}
}

// TestPartitionEnds: all traffic of the waiters is lost in silence for a while, as
// the lock is handed over.
func TestPartitionEnds(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	proxy, err := faults.NewProxy(s.server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	a, c := s.engine(nil), s.engine(nil)
	b := redislock.New(rueidisClient(t, rueidisOption(proxy.Addr())), patient(nil))
	t.Cleanup(func() { _ = b.Close() })
	h := s.hold(a, request("n"))
	first, second := s.queue(b, brief("n")), s.queue(c, request("n"))
	proxy.Drop(faults.Both)
	h.free()
	g := second.granted()
	if first.answered() {
		t.Error("a waiter got in through a partition")
	}
	if err := proxy.Heal(); err != nil {
		t.Fatal(err)
	}
	proxy.Reset()
	g.free()
	first.granted().free()
	s.clean("n")
}

// TestScriptFlush: the server forgets the scripts while locks are held and waited
// for.
func TestScriptFlush(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	h := s.hold(a, request("n"))
	ws := s.lineUp(3, request("n"), a, b)
	s.server.Do(t, "SCRIPT", "FLUSH")
	if err := h.renew(); err != nil {
		t.Error(err)
	}
	s.server.Do(t, "SCRIPT", "FLUSH")
	h.free()
	s.server.Do(t, "SCRIPT", "FLUSH")
	s.inOrder(ws...)
}

// TestFlushAll: the server forgets everything. The holder learns of it, waiters
// come back in their old order, and tokens go on growing.
func TestFlushAll(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	h := s.hold(a, request("n"))
	ws := s.lineUp(3, request("n"), b)
	ws = append(ws, s.queue(b, brief("n"))) // so that b looks soon
	s.server.Do(t, "FLUSHALL")
	s.gone(h.renew())
	s.gone(h.release())
	g := ws[0].granted()
	if g.Token <= h.Token {
		t.Errorf("token %d after %d", g.Token, h.Token)
	}
	verdict.Is(t, "Redis: the server loses its data", verdict.Guarded, verdict.OfHolders(nil, h.Token, g.Token))
	s.inOrder(ws...)
	s.clean("n")
}

// TestRestart: a server that keeps its data keeps holders and the queue; one that
// does not tells the holder so.
func TestRestart(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redis: the server restarts with all its data", verdict.Safe)
	for _, keeps := range []bool{true, false} {
		appendonly := map[bool]string{true: "yes", false: "no"}[keeps]
		s := newScene(t, "--appendonly", appendonly, "--appendfsync", "always")
		a, b := s.engine(nil), s.engine(nil)
		h := s.hold(a, request("n"))
		ws := s.lineUp(3, request("n"), b)
		s.server.Kill(t)
		s.server.Restart(t)
		err := h.renew()
		for end := time.Now().Add(patience); err != nil && strings.Contains(err.Error(), "redis at") && time.Now().Before(end); {
			time.Sleep(50 * time.Millisecond)
			err = h.renew()
		}
		if keeps {
			if err != nil {
				t.Errorf("a holder after a restart that kept it: %v", err)
			}
			h.free()
		} else {
			s.gone(err)
		}
		g := ws[0].granted()
		if g.Token <= h.Token {
			t.Errorf("token %d after %d", g.Token, h.Token)
		}
		if !keeps { // before its renewal failed, the first holder considered itself one
			verdict.Is(t, "Redis: the server loses its data", verdict.Guarded, verdict.OfHolders(nil, h.Token, g.Token))
		}
		s.inOrder(ws...)
	}
}
