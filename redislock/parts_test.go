package redislock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/enginetest"
	"github.com/fencelock/fencelock/redislock"
)

// TestPart: leases are of one part if one master has them, and follow a slot that
// moves.
func TestPart(t *testing.T) {
	if part := newScene(t).engine(nil).Part(driver.Lease{Name: "n"}); part != "" {
		t.Errorf("a part of a single server is %q", part)
	}
	c := enginetest.StartRedisCluster(t, 3)
	e := clusterEngine(t, c)
	s := scene{TB: t, server: c.Nodes()[0]}
	s.hold(e, request("first")).free() // asks for the table
	s.until("the table of slots", func() bool { return len(partsOf(e)) == 3 })
	for i := range 100 {
		name := fmt.Sprint("n", i)
		slot := c.Slot("lock:" + name)
		owner := c.Owner(t, slot)
		if got, want := e.Part(driver.Lease{Name: name}), owner.Do(t, "CLUSTER", "MYID"); got != want {
			t.Fatalf("%s in slot %d is of part %s, want %s", name, slot, got, want)
		}
	}
	slot := c.Slot("lock:n")
	from, to := c.Owner(t, slot), c.Nodes()[0]
	if from == to {
		to = c.Nodes()[1]
	}
	c.Migrate(t, slot, from, to)
	id := to.Do(t, "CLUSTER", "MYID")
	s.until("the slot's new owner", func() bool { return e.Part(driver.Lease{Name: "n"}) == id })
}

// partsOf returns how many of 300 names each part has.
func partsOf(e *redislock.Engine) map[string]int {
	parts := map[string]int{}
	for i := range 300 {
		parts[e.Part(driver.Lease{Name: fmt.Sprint("n", i)})]++
	}
	return parts
}

// TestFrozenMasterCostsItsOwnLocks: one of three masters is silent for several
// TTLs. Of 300 locks, renewed part by part, none of the others is lost.
func TestFrozenMasterCostsItsOwnLocks(t *testing.T) {
	c := enginetest.StartRedisCluster(t, 3, "--cluster-node-timeout", "60000") // nobody calls it dead
	e := clusterEngine(t, c)
	const ttl = 6 * time.Second
	parts := map[string][]driver.Lease{}
	var held []driver.Lease
	for i := range 300 {
		req := try(driver.Request{Name: fmt.Sprint("n", i), TTL: ttl})
		g, err := e.Acquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, driver.Lease{Name: req.Name, Owner: g.Owner, Token: g.Token, TTL: ttl})
	}
	scene{TB: t}.until("the table of slots", func() bool { return len(partsOf(e)) == 3 })
	for _, l := range held {
		parts[e.Part(l)] = append(parts[e.Part(l)], l)
	}
	c.Nodes()[1].Freeze(t)
	sick := e.Part(driver.Lease{Name: nameOn(c, 1)})
	ctx, cancel := context.WithTimeout(t.Context(), 3*ttl)
	defer cancel()
	var renewers sync.WaitGroup
	for _, leases := range parts {
		renewers.Go(func() { renewUntil(ctx, e, leases) }) // ends with ctx
	}
	renewers.Wait()
	for part, leases := range parts {
		if part == sick {
			continue
		}
		for i, err := range e.Renew(t.Context(), leases) {
			if err != nil {
				t.Errorf("%s: %v", leases[i].Name, err)
			}
		}
	}
	t.Logf("%d parts, %d of %d locks on the frozen master", len(parts), len(parts[sick]), len(held))
}

// renewUntil renews leases as a Locker does, until ctx ends.
func renewUntil(ctx context.Context, e *redislock.Engine, leases []driver.Lease) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, leases[0].TTL/6)
		e.Renew(limited, leases)
		<-limited.Done()
		cancel()
	}
}

// nameOn returns a name whose lock is on a node.
func nameOn(c *enginetest.RedisCluster, node int) string {
	for i := 0; ; i++ {
		name := fmt.Sprint("n", i)
		if c.Slot("lock:"+name)*3/enginetest.Slots == node {
			return name
		}
	}
}
