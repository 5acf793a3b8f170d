package redislock_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// TestGrantIsNotHeardFromAReplica: after a failover a waiter still listens to the old
// master, which is a replica now. The new one hands the lock to it, finds that nobody
// listens, and gives the lock to somebody else. The waiter must not receive that grant,
// which its own server would pass on.
func TestGrantIsNotHeardFromAReplica(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	promoted := scene{TB: t, server: redistest.StartRedisReplica(t, s.server), looks: &observer{}}
	a := s.engine(nil)
	b, tap := s.tapped(nil)
	h := s.hold(a, request("n"))
	var mu sync.Mutex // guards heard
	var heard []string
	tap.texts(func(text string, pass func(string)) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, text)
		if text != "marker" {
			pass(text)
		}
	})
	w := s.queue(b, request("n"))
	s.ready(b)
	s.until("the replica has it all", func() bool { return promoted.queued("n") == 1 })

	promoted.server.Replicaof(t, "no", "one")
	s.server.Replicaof(t, "127.0.0.1", strconv.Itoa(promoted.server.Port()))
	s.server.WaitLink(t)
	c := promoted.engine(nil)
	hold{promoted, c, h.req, h.Grant}.free()
	g := promoted.hold(c, try(request("n")))
	s.until("the old master has it all", func() bool { return strings.Contains(s.server.Do(t, "GET", "lock:n"), g.Owner) })
	s.server.Do(t, "PUBLISH", "fencelock:2:"+b.ID(), "marker")
	s.until("what b hears", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(heard) > 0 && heard[len(heard)-1] == "marker"
	})
	if len(heard) > 1 || w.answered() {
		t.Errorf("while somebody else holds the lock a replica has told a waiter: %q", heard[:len(heard)-1])
	}
	s.server.Replicaof(t, "no", "one") // or the withdrawal takes long
}
