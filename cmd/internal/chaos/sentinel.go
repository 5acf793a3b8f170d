//go:build unix

package chaos

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

const (
	pair       = 2               // a master and its replica, the first servers
	sentinels  = 3               // which come after them
	replicaLag = 2 * time.Second // after which a master that is cut off stops
)

// startSentinel starts a master, a replica and their Sentinels. All but the workers
// reach the first two through proxies, which isolate them.
func startSentinel(t hosttest.TB, settings ...string) servers {
	fronts := map[*redistest.Redis]*faults.Proxy{}
	w := redistest.StartSentinelBehind(t, sentinels, func(r *redistest.Redis) int {
		p, err := faults.NewProxy(r.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		fronts[r] = p
		port, _ := strconv.Atoi(p.Addr()[strings.LastIndex(p.Addr(), ":")+1:])
		return port
	}, settings...)
	all := append([]*redistest.Redis{w.Master(), w.Replica()}, w.Sentinels()...)
	s := redisServers(t, all)
	for i, r := range all {
		s.known = append(s.known, r.Addr())
		if i < pair {
			s.known[i] = w.Known(r)
		}
	}
	s.hosts = s.known[pair:]
	s.master = func() int { return slices.Index(s.known, w.Agreed()) }
	s.promote = func() { _, _ = w.Sentinels()[0].TryDo("SENTINEL", "FAILOVER", w.MasterName()) }
	s.isolate = func(i int) (heal func()) {
		p := fronts[all[i]]
		p.Drop(faults.Both)
		return func() { p.Drop(0) }
	}
	s.tend = w.Demote
	s.settle = func() {
		for deadline := time.Now().Add(time.Minute); !w.Steady(); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the failovers do not end")
			}
			s.tend()
		}
		if slices.Contains(settings, "--min-replicas-to-write") {
			all[s.master()].WaitReplicas(t, 1)
		}
	}
	return s
}

// split cuts the master off with a part of the workers: these reach nobody else, and
// the others do not reach it.
func (r *round) split(random *rand.Rand) (heal func()) {
	m := r.servers.master()
	if m < 0 || r.paused[m] > 0 {
		return nil
	}
	heals := []func(){r.servers.isolate(m)}
	for worker := range r.Workers {
		along := random.IntN(2) == 0
		for i, p := range r.proxiesOf(worker, everyServer) {
			if (i == m) != along {
				p.Drop(faults.Both)
				heals = append(heals, func() { p.Drop(0) })
			}
		}
	}
	return func() {
		for _, heal := range heals {
			heal()
		}
	}
}
