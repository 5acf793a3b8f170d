package redislock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redislock"
)

// TestClusterSlotMigration: the keys of a lock move to another node, a few at a
// time, while it is held and waited for.
func TestClusterSlotMigration(t *testing.T) {
	t.Parallel()
	c := redistest.StartRedisCluster(t, 3)
	a, b, d := clusterEngine(t, c), clusterEngine(t, c), clusterEngine(t, c)
	slot := c.Slot(t, "lock:n")
	from := c.Owner(t, slot)
	to := c.Nodes()[(slices.Index(c.Nodes(), from)+1)%3]
	s := scene{TB: t, server: from}
	h := s.hold(a, request("n"))
	first, second := s.queue(b, request("n")), s.queue(d, request("n"))

	c.BeginMigration(t, slot, from, to)
	c.MoveKeys(t, slot, from, to, "lock:n")
	if err := h.renew(); err != nil {
		t.Logf("a renewal in the middle of the move: %v", err)
		if errors.Is(err, driver.ErrNotHeld) {
			t.Error("the holder was told that its lock is gone")
		}
	}
	c.MoveKeys(t, slot, from, to)
	c.EndMigration(t, slot, from, to)
	s.server = to
	s.until("renewed", func() bool { return h.renew() == nil })
	last := s.queue(a, request("n"))
	s.until("released", func() bool { return h.release() == nil })
	s.inOrder(first, second, last)
	s.clean("n")
}

// TestClusterSlowMigration: a part of a lock's keys has moved, and the rest does not
// for longer than RetryTimeout. Waiters stay in the queue. A release works at once, and lets
// the next one in when the move is over.
func TestClusterSlowMigration(t *testing.T) {
	t.Parallel()
	c := redistest.StartRedisCluster(t, 3)
	a, b := clusterEngine(t, c), clusterEngineOf(t, c, &redislock.Config{RetryTimeout: time.Second})
	slot := c.Slot(t, "lock:n")
	from := c.Owner(t, slot)
	to := c.Nodes()[(slices.Index(c.Nodes(), from)+1)%3]
	s := scene{TB: t, server: from}
	s.warm(b)
	s.ready(b)
	h := s.hold(a, request("n"))
	w := s.requeue(b, brief("n"))
	c.BeginMigration(t, slot, from, to)
	c.MoveKeys(t, slot, from, to, "fencelock:2:queue:{lock:n}")
	select {
	case <-w.done:
		_, err := w.ended()
		t.Fatalf("the wait ended: %v", err)
	case <-time.After(4 * time.Second):
	}
	h.free()
	c.MoveKeys(t, slot, from, to)
	c.EndMigration(t, slot, from, to)
	s.server = to
	w.granted().free()
}

// TestClusterQueueThatComesLate: a lock and its fence have moved to another node, where it
// is released before the queue comes. Who waits there gets in all the same.
func TestClusterQueueThatComesLate(t *testing.T) {
	t.Parallel()
	c := redistest.StartRedisCluster(t, 3)
	slot := c.Slot(t, "lock:n")
	from := c.Owner(t, slot)
	to := c.Nodes()[(slices.Index(c.Nodes(), from)+1)%3]
	s := scene{TB: t, server: from}
	a := clusterEngine(t, c)
	tap := &tap{Conn: redisconn.Rueidis(rueidisClient(t, rueidisOption(c.Addrs()...))), longGrants: true}
	b := redislock.NewConn(tap, patient(nil))
	t.Cleanup(func() { _ = b.Close() })
	moved := make(chan struct{})
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		if c.Script == redislock.TouchScript {
			<-moved
		}
		return do()
	})
	h := s.hold(a, request("n"))
	w := s.queue(b, brief("n"))
	c.BeginMigration(t, slot, from, to)
	c.MoveKeys(t, slot, from, to, "lock:n", "fencelock:2:fence:{lock:n}")
	h.free()
	c.MoveKeys(t, slot, from, to)
	c.EndMigration(t, slot, from, to)
	to.Do(t, "PERSIST", "fencelock:2:queue:{lock:n}") // its end would help after six TTLs
	close(moved)
	w.granted().free()
}

// TestClusterAcquireInAMovingSlot: while a slot moves, a name that is new cannot be had in
// it, and the error says what the server says. An acquire is patient for RetryTimeout, and gets
// in when the move is over, whose time the log has.
func TestClusterAcquireInAMovingSlot(t *testing.T) {
	t.Parallel()
	c := redistest.StartRedisCluster(t, 3)
	e := clusterEngine(t, c)
	slot := c.Slot(t, "lock:n{t}")
	from := c.Owner(t, slot)
	to := c.Nodes()[(slices.Index(c.Nodes(), from)+1)%3]
	s := scene{TB: t, server: from}
	from.Do(t, "EVAL", `for i = 1, 1000 do redis.call('SET', 'fence:lock:' .. i .. KEYS[1], 'x', 'PX', 60000) end`, "1", "{t}")
	h := s.hold(e, request("held{t}"))
	c.BeginMigration(t, slot, from, to)
	s.hears(driver.ErrUnavailable, "key", func(giveUp time.Duration) error {
		_, err := s.ask(clusterEngineOf(t, c, &redislock.Config{RetryTimeout: giveUp}), try(request("n{t}"))).ended()
		return err
	})
	if err := h.renew(); err != nil {
		t.Errorf("a lock whose keys have not moved: %v", err)
	}
	w := s.ask(e, request("n{t}"))
	time.Sleep(100 * time.Millisecond)
	if w.answered() {
		_, err := w.ended()
		t.Fatalf("the acquire ended: %v", err)
	}
	begun := time.Now()
	c.MoveKeys(t, slot, from, to)
	c.EndMigration(t, slot, from, to)
	t.Logf("1,000 keys and their slot moved in %v", time.Since(begun))
	w.kept().free()
	h.free()
}

// TestClusterGrantAfterAMove: the slot of a name moves to another node, which hands the lock over.
// Its clock does not matter: the lease counts from a request that the waiter sent before the grant.
func TestClusterGrantAfterAMove(t *testing.T) {
	t.Parallel()
	c := redistest.StartRedisCluster(t, 3)
	slot := c.Slot(t, "lock:n")
	from := c.Owner(t, slot)
	to := c.Nodes()[(slices.Index(c.Nodes(), from)+1)%3]
	s := scene{TB: t, server: from}
	a := briskCluster(t, c)
	tap := &tap{Conn: redisconn.Rueidis(rueidisClient(t, rueidisOption(c.Addrs()...)))}
	b := redislock.NewConn(tap, patient(nil))
	t.Cleanup(func() { _ = b.Close() })
	tap.texts(func(text string, pass func(string)) {
		time.Sleep(300 * time.Millisecond)
		pass(text)
	})
	h := s.hold(a, request("n"))
	w := s.queue(b, request("n"))
	c.Migrate(t, slot, from, to)
	s.server = to
	time.Sleep(time.Second)
	s.until("released", func() bool { return h.release() == nil })
	released := time.Now()
	if g := w.granted(); g.TTL != long && g.Sent.After(released) {
		t.Errorf("a grant of %v that was not confirmed counts from %v after the release", g.TTL, g.Sent.Sub(released))
	}
}

// briskCluster is clusterEngine for tests of the end of what is granted to those who wait.
func briskCluster(t testing.TB, c *redistest.RedisCluster) *redislock.Engine {
	e := redislock.New(rueidisClient(t, rueidisOption(c.Addrs()...)), patient(nil))
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// TestClusterFreesTheDead: on a Cluster nobody can tell from PUBLISH who is dead;
// a process that is costs one grant.
func TestClusterFreesTheDead(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redis: a waiter dies", verdict.Safe)
	c := redistest.StartRedisCluster(t, 3)
	a, b := briskCluster(t, c), briskCluster(t, c)
	s := scene{TB: t, server: c.Owner(t, c.Slot(t, "lock:n"))}
	h := s.hold(a, request("n"))
	s.server.Do(t, "ZADD", "fencelock:2:queue:{lock:n}", "1", "00000000-0000-7000-8000-000000000000 dead x 0 1 60000 0 1 host ")
	s.server.Do(t, "SET", "fencelock:2:alive:{lock:n}:dead", "", "PX", "60000")
	s.server.Do(t, "PEXPIRE", "fencelock:2:queue:{lock:n}", "60000")
	w := s.queue(b, request("n"))
	begun := time.Now()
	h.free()
	w.granted().free()
	took := time.Since(begun)
	if took > 20*time.Second {
		t.Errorf("a dead process cost %v, want 2 s", took)
	}
	t.Logf("a dead process cost %v", took)
}

// TestClusterHasNoQuarantine: it is refused, in words that say what to do.
func TestClusterHasNoQuarantine(t *testing.T) {
	t.Parallel()
	c := redistest.StartRedisCluster(t, 3)
	e := redislock.New(rueidisClient(t, rueidisOption(c.Addrs()...)), &redislock.Config{Quarantine: true})
	t.Cleanup(func() { _ = e.Close() })
	if _, err := e.Acquire(context.Background(), try(brief("n"))); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}
