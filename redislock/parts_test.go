package redislock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redislock"
)

// TestPart: leases are of one part if one master has them, and follow a slot that
// moves.
func TestPart(t *testing.T) {
	t.Parallel()
	if part := newScene(t).engine(nil).Part(driver.Lease{Name: "n"}); part != "" {
		t.Errorf("a part of a single server is %q", part)
	}
	c := redistest.StartRedisCluster(t, 3)
	e := clusterEngine(t, c)
	s := scene{TB: t, server: c.Nodes()[0]}
	s.hold(e, request("first")).free() // asks for the table
	s.until("the table of slots", func() bool { return len(partsOf(e)) == 3 })
	for i := range 100 {
		name := fmt.Sprint("n", i)
		slot := c.Slot(t, "lock:"+name)
		owner := c.Owner(t, slot)
		if got, want := e.Part(driver.Lease{Name: name}), owner.Do(t, "CLUSTER", "MYID"); got != want {
			t.Fatalf("%s in slot %d is of part %s, want %s", name, slot, got, want)
		}
	}
	slot := c.Slot(t, "lock:n")
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

// TestFrozenMasterClosesItsOwnNames: one of three masters is silent. Whoever looks at the
// servers anew, as after each error of the connection, gets the names of the others.
func TestFrozenMasterClosesItsOwnNames(t *testing.T) {
	t.Parallel()
	c := redistest.StartRedisCluster(t, 3, "--cluster-node-timeout", "60000") // nobody calls it dead
	const frozen = 1
	e := clusterEngineOf(t, c, &redislock.Config{RetryTimeout: 10 * time.Second})
	s := scene{TB: t, server: c.Nodes()[0]}
	s.warm(e)
	c.Nodes()[frozen].Freeze(t)
	for i := range 10 {
		name := fmt.Sprint("n", i)
		if c.Slot(t, "lock:"+name)*3/redistest.Slots == frozen {
			continue
		}
		if i < 5 {
			e.Doubt()
		}
		h, err := s.ask(e, try(request(name))).ended()
		if err != nil {
			t.Fatalf("%s, whose master answers: %v", name, err)
		}
		h.free()
	}
}

// TestFrozenMasterCostsItsOwnLocks: one of three masters is silent for several
// TTLs. Of 300 locks that a Locker keeps, none of the other masters' is lost.
func TestFrozenMasterCostsItsOwnLocks(t *testing.T) {
	t.Parallel()
	c := redistest.StartRedisCluster(t, 3, "--cluster-node-timeout", "60000") // nobody calls it dead
	const ttl, frozen = 12 * time.Second, 1
	locks := fencelock.New(clusterEngine(t, c), &fencelock.Config{ReleaseTimeout: ttl / 3}).With(fencelock.Options{TTL: ttl})
	var sick, healthy []*fencelock.Lock
	for i := range 300 {
		name := fmt.Sprint("n", i)
		lock, err := locks.TryAcquire(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if c.Slot(t, "lock:"+name)*3/redistest.Slots == frozen {
			sick = append(sick, lock)
		} else {
			healthy = append(healthy, lock)
		}
	}
	c.Nodes()[frozen].Freeze(t)
	for _, lock := range sick {
		<-lock.Context().Done() // its last renewal was acknowledged before the freeze
	}
	first := healthy[0].Deadline()
	for _, lock := range healthy {
		for lock.Err() == nil && !lock.Deadline().After(first.Add(2*ttl)) {
			time.Sleep(ttl / 60) // several leases long
		}
	}
	lost := 0
	for _, lock := range healthy {
		if err := lock.Err(); err != nil {
			lost++
			t.Log(err)
		}
		_ = lock.Release()
	}
	if lost > 0 {
		t.Errorf("%d of %d locks on the healthy masters were lost", lost, len(healthy))
	}
	t.Logf("%d of 300 locks were on the frozen master", len(sick))
}

// partsOfTouches is a Conn that counts touches, and those whose pipelines go to several masters.
type partsOfTouches struct {
	redisconn.Conn
	of             map[string]int // masters of locks
	touches, mixed atomic.Int32
}

func (p *partsOfTouches) Eval(ctx context.Context, calls []redisconn.Call) []redisconn.Reply {
	if calls[0].Script == redislock.TouchAllScript {
		p.touches.Add(1)
		for _, c := range calls {
			if p.of[c.Keys[1]] != p.of[calls[0].Keys[1]] {
				p.mixed.Add(1)
			}
		}
	}
	return p.Conn.Eval(ctx, calls)
}

// TestTouchesOfMastersGoSeparately: a client waits for names of all masters of a Cluster. It tells each
// master by a pipeline of its own, so that one that is silent does not delay the others.
func TestTouchesOfMastersGoSeparately(t *testing.T) {
	t.Parallel()
	c := redistest.StartRedisCluster(t, 3)
	conn := &partsOfTouches{Conn: redisconn.Rueidis(rueidisClient(t, rueidisOption(c.Addrs()...))), of: map[string]int{}}
	const names = 20
	for i := range names {
		lock := fmt.Sprint("lock:n", i)
		conn.of[lock] = c.Slot(t, lock) * 3 / redistest.Slots
	}
	e := redislock.NewConn(conn, patient(nil))
	t.Cleanup(func() { _ = e.Close() })
	holder := clusterEngine(t, c)
	s := scene{TB: t, server: c.Nodes()[0]}
	for i := range names {
		req := request(fmt.Sprint("n", i))
		s.hold(holder, req)
		s.queue(e, req)
	}
	before := conn.touches.Load()
	s.until("all masters have been told", func() bool { return conn.touches.Load() > before+6 })
	if n := conn.mixed.Load(); n > 0 {
		t.Errorf("%d calls went with those for another master", n)
	}
}
