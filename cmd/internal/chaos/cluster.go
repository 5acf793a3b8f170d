//go:build unix

package chaos

import (
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// startCluster starts a Cluster of masters. Nobody calls one dead that stands still.
func startCluster(t hosttest.TB) servers {
	c := redistest.StartRedisCluster(t, 3, append([]string{"--cluster-node-timeout", "60000"}, durable...)...)
	s := redisServers(t, c.Nodes())
	crash := s.crash
	s.crash = func(i int, r *rand.Rand) {
		crash(i, r)
		c.WaitOK(t)
	}
	s.move = func(name string, r *rand.Rand) (end func()) {
		slot := c.Slot(t, "lock:"+name)
		from := c.Owner(t, slot)
		to := from
		for to == from {
			to = c.Nodes()[r.IntN(len(c.Nodes()))]
		}
		c.BeginMigration(t, slot, from, to)
		for key := range strings.Lines(from.Do(t, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), "100")) {
			if r.IntN(2) == 0 {
				c.MoveKeys(t, slot, from, to, strings.TrimSuffix(key, "\n"))
			}
		}
		return func() {
			c.MoveKeys(t, slot, from, to)
			c.EndMigration(t, slot, from, to)
		}
	}
	s.settle = func() { c.WaitOK(t) }
	return s
}
