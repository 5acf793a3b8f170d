package redislock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redislock"
)

func sentinelEngine(t testing.TB, w *redistest.Sentinel, cfg *redislock.Config) *redislock.Engine {
	o := rueidisOption(w.Addrs()...)
	o.Sentinel.MasterSet = w.MasterName()
	o.Sentinel.TopologyRefreshInterval = 5 * time.Second
	e := redislock.NewConn(&tap{Conn: redisconn.Rueidis(rueidisClient(t, o)), longGrants: true}, patient(cfg))
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// TestSentinelFailover: a failover keeps what the replica had received, with the
// queue, and waiters come along.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	w := redistest.StartSentinel(t, 3)
	s := scene{TB: t, server: w.Master()}
	a, b := sentinelEngine(t, w, &redislock.Config{MinReplicas: 1}), sentinelEngine(t, w, nil)
	h := s.replicated(a)
	first, second := s.queue(b, request("n")), s.queue(b, request("n"))
	s.until("the replica has it all", func() bool { return w.Replica().Do(t, "ZCARD", "fencelock:2:queue:{lock:n}") == "2" })
	w.Master().Kill(t)
	w.WaitMaster(t, w.Master().Addr())
	s.until("renewed", func() bool { return h.renew() == nil })
	h.free()
	g := first.granted()
	if g.Token <= h.Token {
		t.Errorf("token %d after %d", g.Token, h.Token)
	}
	g.free()
	second.granted().free()
}

// replicated takes a lock for a client that wants it on a replica. On a slow machine the
// replica may be too late.
func (s scene) replicated(e *redislock.Engine) (h hold) {
	s.Helper()
	s.until("a lock that the replica has", func() bool {
		var err error
		h, err = s.ask(e, request("n")).ended()
		return err == nil
	})
	return h
}

// TestSentinelFailoverForgets is documented as unsafe: the replica had not received
// the lock, and a second holder gets in. Its token is greater, so what a guard
// protects is right; the first one learns by its next renewal.
func TestSentinelFailoverForgets(t *testing.T) {
	t.Parallel()
	w := redistest.StartSentinel(t, 3)
	s := scene{TB: t, server: w.Master()}
	a, b := sentinelEngine(t, w, nil), sentinelEngine(t, w, nil)
	s.hold(a, request("n")).free()
	s.until("the replica has it all", func() bool { return w.Replica().Do(t, "EXISTS", "fencelock:2:fence:{lock:n}", "lock:n") == "1" })
	w.Replica().Replicaof(t, "127.0.0.1", "1")
	h := s.hold(a, request("n"))
	w.Master().Kill(t)
	w.Replica().Replicaof(t, "no", "one")
	w.WaitMaster(t, w.Master().Addr())
	g := s.hold(b, request("n"))
	if g.Token <= h.Token {
		t.Errorf("token %d after %d: a guard would let the first holder write", g.Token, h.Token)
	}
	verdict.Is(t, "Redis: failover to a replica that lacked the lock", verdict.Guarded, verdict.OfHolders(nil, h.Token, g.Token))
	s.until("the first holder learns", func() bool { return errors.Is(h.renew(), driver.ErrNotHeld) })
}

// TestMinReplicas: a grant that no replica acknowledges is given back, whether a
// try or a hand-over brought it.
func TestMinReplicas(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	replica := redistest.StartRedisReplica(t, s.server)
	cfg := &redislock.Config{MinReplicas: 1}
	a, b := s.engine(cfg), s.engine(nil)
	s.replicated(a).free()
	s.until("a hand-over that the replica has", func() bool {
		h := s.hold(b, request("n"))
		w := s.queue(a, request("n"))
		h.free()
		got, err := w.ended()
		return err == nil && got.freed() == nil
	})

	h := s.hold(b, request("n"))
	w := s.queue(a, request("n"))
	replica.Freeze(t)
	h.free()
	refused := func(err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "0 of 1 replicas") {
			t.Errorf("without its replica: %v", err)
		}
	}
	_, err := w.ended()
	refused(err)
	_, err = a.Acquire(context.Background(), try(request("n")))
	refused(err)
	s.clean("n")
	s.hold(b, request("n")).free()
}
