package redistest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
)

// Slots is the number of slots of a Redis Cluster.
const Slots = 16384

// A RedisCluster is a Redis Cluster of masters without replicas. Its servers keep their place in
// the cluster when they are restarted.
type RedisCluster struct {
	nodes []*Redis
	ids   map[*Redis]string
}

// StartRedisCluster starts a cluster of masters, assigns each an equal share of the slots in order,
// and waits until all serve.
func StartRedisCluster(t hosttest.TB, masters int, args ...string) *RedisCluster {
	t.Helper()
	c := &RedisCluster{ids: map[*Redis]string{}}
	for i := range masters {
		// On a slow machine nobody takes another for dead, and an introduction takes its time.
		r := StartRedis(t, append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "60000"}, args...)...)
		r.Do(t, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		r.Do(t, addSlots(i*Slots/masters, (i+1)*Slots/masters)...)
		c.ids[r] = r.Do(t, "CLUSTER", "MYID")
		c.nodes = append(c.nodes, r)
	}
	for _, r := range c.nodes[1:] {
		meet := []string{"CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(r.Port())}
		if _, bus, ok := strings.Cut(r.Do(t, "CONFIG", "GET", "cluster-port"), "\n"); ok {
			meet = append(meet, bus)
		}
		c.nodes[0].Do(t, meet...)
	}
	c.WaitOK(t)
	return c
}

// addSlots gives a node the slots from first up to next. Redis 6.2 knows no ranges.
func addSlots(first, next int) []string {
	args := []string{"CLUSTER", "ADDSLOTS"}
	for slot := first; slot < next; slot++ {
		args = append(args, strconv.Itoa(slot))
	}
	return args
}

// WaitOK waits until every node that can answer knows all others and reports that the cluster is
// ok.
func (c *RedisCluster) WaitOK(t hosttest.TB) {
	t.Helper()
	for _, r := range c.nodes {
		if !r.up() {
			continue
		}
		waitFor(t, "cluster_state:ok on "+r.Addr(), func() bool {
			info, err := r.TryDo("CLUSTER", "INFO")
			return err == nil && infoField(info, "cluster_state") == "ok" &&
				infoField(info, "cluster_known_nodes") == strconv.Itoa(len(c.nodes))
		})
	}
}

// Addrs returns the addresses of all nodes.
func (c *RedisCluster) Addrs() []string { return addrs(c.nodes) }

// Nodes returns the servers, in the order of their initial slots.
func (c *RedisCluster) Nodes() []*Redis { return c.nodes }

// Slot returns the slot of a key, which depends only on the part in braces if there is one.
func (c *RedisCluster) Slot(t hosttest.TB, key string) int {
	t.Helper()
	up := c.nodes[slices.IndexFunc(c.nodes, (*Redis).up)]
	slot, err := strconv.Atoi(up.Do(t, "CLUSTER", "KEYSLOT", key))
	if err != nil {
		t.Fatal(err)
	}
	return slot
}

// Owner returns the node that serves a slot, as reported by the nodes.
func (c *RedisCluster) Owner(t hosttest.TB, slot int) *Redis {
	t.Helper()
	for _, r := range c.nodes {
		if r.up() && serves(r.Do(t, "CLUSTER", "NODES"), slot) {
			return r
		}
	}
	t.Fatalf("nobody serves slot %d", slot)
	return nil
}

// serves reports whether the node that answered CLUSTER NODES has a slot: its
// own line is "id addr myself,master - 0 0 1 connected 0-5460 6000 [...]".
func serves(nodes string, slot int) bool {
	for line := range strings.Lines(nodes) {
		f := strings.Fields(line)
		if len(f) < 9 || !strings.Contains(f[2], "myself") {
			continue
		}
		for _, s := range f[8:] {
			var first, last int
			switch n, _ := fmt.Sscanf(s, "%d-%d", &first, &last); n {
			case 1:
				last = first
			case 0:
				continue // a slot on its way, in brackets
			}
			if first <= slot && slot <= last {
				return true
			}
		}
	}
	return false
}

// Migrate moves a slot with its keys from one node to another.
func (c *RedisCluster) Migrate(t hosttest.TB, slot int, from, to *Redis) {
	t.Helper()
	c.BeginMigration(t, slot, from, to)
	c.MoveKeys(t, slot, from, to)
	c.EndMigration(t, slot, from, to)
}

// BeginMigration starts to move a slot: from now on the old owner answers ASK for keys that it does
// not have, and TRYAGAIN for scripts whose keys are on both nodes.
func (c *RedisCluster) BeginMigration(t hosttest.TB, slot int, from, to *Redis) {
	t.Helper()
	to.Do(t, "CLUSTER", "SETSLOT", strconv.Itoa(slot), "IMPORTING", c.ids[from])
	from.Do(t, "CLUSTER", "SETSLOT", strconv.Itoa(slot), "MIGRATING", c.ids[to])
}

// MoveKeys moves all keys of a slot, or only the given ones. A key that exists on the new owner,
// because a request has created it there, is replaced by that of the old owner.
func (c *RedisCluster) MoveKeys(t hosttest.TB, slot int, from, to *Redis, keys ...string) {
	t.Helper()
	if len(keys) > 0 {
		c.move(t, from, to, keys)
		return
	}
	for {
		found := from.Do(t, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), "100")
		if found == "" {
			return
		}
		c.move(t, from, to, strings.Split(found, "\n"))
	}
}

func (c *RedisCluster) move(t hosttest.TB, from, to *Redis, keys []string) {
	t.Helper()
	args := []string{"MIGRATE", "127.0.0.1", strconv.Itoa(to.Port()), "", "0", "5000", "REPLACE"}
	if to.password != "" {
		args = append(args, "AUTH", to.password)
	}
	from.Do(t, append(append(args, "KEYS"), keys...)...)
}

// EndMigration makes to the owner of a slot, and informs all nodes that can answer. The new owner
// is informed first, so that the slot always has an owner. It gets the greatest epoch, as it would
// by itself unless it had crashed; otherwise a third node could convince it that the old owner
// still has the slot.
func (c *RedisCluster) EndMigration(t hosttest.TB, slot int, from, to *Redis) {
	t.Helper()
	told := []*Redis{to, from}
	for _, r := range c.nodes {
		if r != to && r != from && r.up() {
			told = append(told, r)
		}
	}
	to.Do(t, "CLUSTER", "BUMPEPOCH")
	for _, r := range told {
		r.Do(t, "CLUSTER", "SETSLOT", strconv.Itoa(slot), "NODE", c.ids[to])
	}
}
