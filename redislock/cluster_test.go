package redislock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/enginetest"
	"github.com/fencelock/fencelock/redislock"
)

// TestClusterSlotMigration: the keys of a lock move to another node, a few at a
// time, while it is held and waited for.
func TestClusterSlotMigration(t *testing.T) {
	c := enginetest.StartRedisCluster(t, 3)
	a, b, d := clusterEngine(t, c), clusterEngine(t, c), clusterEngine(t, c)
	slot := c.Slot("lock:n")
	from := c.Owner(t, slot)
	to := c.Nodes()[(slices.Index(c.Nodes(), from)+1)%3]
	s := scene{t, from, nil}
	h := s.hold(a, request("n"))
	first, second := s.queue(b, brief("n")), s.queue(d, brief("n"))

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

// TestClusterFreesTheDead: on a Cluster nobody can tell from PUBLISH who is dead;
// a process that is costs one grant.
func TestClusterFreesTheDead(t *testing.T) {
	c := enginetest.StartRedisCluster(t, 3)
	a, b := clusterEngine(t, c), clusterEngine(t, c)
	s := scene{t, c.Owner(t, c.Slot("lock:n")), nil}
	h := s.hold(a, request("n"))
	s.server.Do(t, "ZADD", "queue:{lock:n}", "1", "00000000-0000-7000-8000-000000000000 dead x 0 60000 0 1 host ")
	s.server.Do(t, "ZADD", "alive:{lock:n}", number(time.Now().UnixMicro()), "dead")
	s.server.Do(t, "PEXPIRE", "queue:{lock:n}", "60000")
	w := s.queue(b, request("n"))
	begun := time.Now()
	h.free()
	w.granted().free()
	took := time.Since(begun)
	if took > 12*time.Second {
		t.Errorf("a dead process cost %v, want 2 s", took)
	}
	t.Logf("a dead process cost %v", took)
}

// TestClusterHasNoQuarantine: it is refused, in words that say what to do.
func TestClusterHasNoQuarantine(t *testing.T) {
	c := enginetest.StartRedisCluster(t, 3)
	e := redislock.New(rueidisClient(t, rueidisOption(c.Addrs()...)), &redislock.Config{Quarantine: true})
	t.Cleanup(func() { _ = e.Close() })
	if _, err := e.Acquire(context.Background(), try(brief("n"))); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}
