package redistest_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

func TestRedisClusterMigratesStepByStep(t *testing.T) {
	t.Parallel()
	c := redistest.StartRedisCluster(t, 3)
	const a, b = "lock:{job}", "wait:{job}"
	slot := c.Slot(a)
	if got := c.Nodes()[0].Do(t, "CLUSTER", "KEYSLOT", a); got != strconv.Itoa(slot) || c.Slot(b) != slot {
		t.Fatalf("slot of %s: %d, the server says %s", a, slot, got)
	}
	from := c.Owner(t, slot)
	to := c.Nodes()[(slices.Index(c.Nodes(), from)+1)%3]
	from.Do(t, "SET", a, "1")
	from.Do(t, "SET", b, "2")
	if _, err := to.TryDo("GET", a); err == nil || !strings.HasPrefix(err.Error(), "MOVED") {
		t.Errorf("the wrong node: %v", err)
	}
	c.BeginMigration(t, slot, from, to)
	c.MoveKeys(t, slot, from, to, a)
	if _, err := from.TryDo("GET", a); err == nil || !strings.HasPrefix(err.Error(), "ASK") {
		t.Errorf("a key that has moved: %v", err)
	}
	if _, err := from.TryDo("MGET", a, b); err == nil || !strings.HasPrefix(err.Error(), "TRYAGAIN") {
		t.Errorf("keys on both sides: %v", err)
	}
	c.MoveKeys(t, slot, from, to)
	c.EndMigration(t, slot, from, to)
	if got := to.Do(t, "MGET", a, b); got != "1\n2" || c.Owner(t, slot) != to {
		t.Errorf("after the move: %q", got)
	}
	c.Migrate(t, slot, to, from)
	if got := from.Do(t, "GET", a); got != "1" {
		t.Errorf("moved back: %q", got)
	}
}

func TestRedisClusterSlots(t *testing.T) {
	t.Parallel()
	var c redistest.RedisCluster
	r := redistest.StartRedis(t, "--cluster-enabled", "yes")
	for _, key := range []string{"", "a", "{a}b", "b{a}", "{}a", "{a", "a}", "{{a}}b", "{}{a}", "x{ä}y"} {
		if got, want := strconv.Itoa(c.Slot(key)), r.Do(t, "CLUSTER", "KEYSLOT", key); got != want {
			t.Errorf("slot of %q: %s, the server says %s", key, got, want)
		}
	}
}

func TestRedisClusterNodeRestarts(t *testing.T) {
	t.Parallel()
	c := redistest.StartRedisCluster(t, 3)
	n := c.Nodes()[1]
	n.Kill(t)
	n.Restart(t)
	c.WaitOK(t)
	if got := c.Owner(t, 8000); got != n {
		t.Errorf("slot 8000 is at %s, want %s", got.Addr(), n.Addr())
	}
}
