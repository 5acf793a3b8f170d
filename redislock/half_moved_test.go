package redislock_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redislock/goredis"
	"github.com/redis/go-redis/v9"
)

// halfMoved is a name of which some keys have moved to another node.
type halfMoved struct {
	name    string
	holds   []hold
	goes    bool           // the first holder releases while it is half moved
	waiters []*call        // who get in when that is over
	wants   driver.Request // is tried twice
	got     []hold         // of these tries
	room    int            // for so many
	last    int64          // token
}

// TestClusterHalfMovedNames: of each name some keys have moved to another node, and the
// others have not, in every combination. Holders renew and release as ever. Nobody gets in
// who would not if all were in one place, no token comes twice, nothing is made anew where a
// key is still to come, and when the move is over all holders still stand, and those who
// waited get in.
func TestClusterHalfMovedNames(t *testing.T) {
	t.Parallel()
	c := redistest.StartRedisCluster(t, 3)
	slot := c.Slot("{t}")
	from := c.Owner(t, slot)
	to := c.Nodes()[(slices.Index(c.Nodes(), from)+1)%3]
	s := scene{TB: t, server: from}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	t.Cleanup(func() { _ = client.Close() })
	third := goredis.New(client, patient(nil))
	t.Cleanup(func() { _ = third.Close() })
	all := s.halfMove(clusterEngine(t, c), clusterEngine(t, c), third)

	there := strings.Fields(from.Do(t, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), "10000"))
	moving := slices.DeleteFunc(slices.Clone(there), func(key string) bool { return !movesEarly(key) })
	c.BeginMigration(t, slot, from, to)
	c.MoveKeys(t, slot, from, to, moving...)
	hasty := clusterEngineOf(t, c, &redislock.Config{RetryTimeout: 500 * time.Millisecond})
	var acts sync.WaitGroup
	for _, m := range all {
		acts.Go(func() { m.live(s, hasty) })
	}
	acts.Wait()
	here := strings.Fields(to.Do(t, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), "10000"))
	for _, key := range strings.Fields(from.Do(t, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), "10000")) {
		if slices.Contains(here, key) {
			t.Errorf("%s is on both nodes", key)
		}
	}
	c.MoveKeys(t, slot, from, to)
	c.EndMigration(t, slot, from, to)
	for _, m := range all {
		m.stands(s, hasty)
	}
}

// halfMove makes names of all kinds. Which keys of one move early is a number after its kind.
func (s scene) halfMove(e, other, third *redislock.Engine) (all []*halfMoved) {
	kinds := map[string]func(*halfMoved){
		"free": func(m *halfMoved) {
			s.server.Do(s, "SET", "fencelock:1:fence:lock:"+m.name, number(m.last), "PX", "600000")
			m.room = 1
		},
		"held":    func(m *halfMoved) { m.holds = append(m.holds, s.hold(third, request(m.name))) },
		"waited":  func(m *halfMoved) { m.holds = append(m.holds, s.hold(e, request(m.name))) },
		"minimum": func(m *halfMoved) { m.holds = append(m.holds, s.hold(third, minHold(request(m.name), time.Hour))) },
		"closed":  func(m *halfMoved) { s.hold(e, minHold(request(m.name), time.Hour)).free() },
		"shared": func(m *halfMoved) {
			m.wants, m.room = shared(m.wants, 3), 1
			m.holds = append(m.holds, s.hold(e, m.wants), s.hold(third, m.wants))
		},
		"full": func(m *halfMoved) {
			m.wants = shared(m.wants, 2)
			m.holds = append(m.holds, s.hold(e, m.wants), s.hold(other, m.wants))
		},
		"weighed": func(m *halfMoved) {
			m.wants, m.room = weighing(shared(m.wants, 5), 2), 1
			m.holds = append(m.holds, s.hold(e, weighing(m.wants, 3)))
		},
		"resized": func(m *halfMoved) {
			m.wants = shared(m.wants, 2)
			s.resize(e, m.name, 1)
			m.holds = append(m.holds, s.hold(e, m.wants))
		},
	}
	for kind, begin := range kinds {
		for mask := range 16 {
			m := &halfMoved{name: fmt.Sprintf("%s-%x{t}", kind, mask)}
			m.wants = try(request(m.name))
			if kind == "free" { // the server's clock has gone back
				m.last = time.Now().Add(24 * time.Hour).UnixMicro()
			}
			begin(m)
			for _, h := range m.holds {
				m.last = max(m.last, h.Token)
			}
			if kind != "closed" && kind != "held" && kind != "resized" && len(m.holds) > 0 {
				m.goes = true
			}
			if kind == "waited" || kind == "full" {
				waits := m.wants
				waits.Wait = true
				m.waiters = append(m.waiters, s.queue(other, waits))
			}
			all = append(all, m)
		}
	}
	return all
}

// movesEarly reports whether a key has moved when a name is half moved: by the number of the
// name the lock, the last token, the queue, or any other key.
func movesEarly(key string) bool {
	_, mask, _ := strings.Cut(key, "-")
	bits, _ := strconv.ParseInt(mask[:1], 16, 0)
	for i, begin := range []string{"lock:", "fencelock:1:fence:", "fencelock:1:queue:", ""} {
		if strings.HasPrefix(key, begin) {
			return bits>>i&1 == 1
		}
	}
	return false
}

// live is what happens to a half moved name.
func (m *halfMoved) live(s scene, e *redislock.Engine) {
	for i, h := range m.holds {
		if err := h.renew(); err != nil {
			s.Errorf("%s: renewing while it moves: %v", m.name, err)
		}
		if m.goes && i == 0 {
			if err := h.release(); err != nil {
				s.Errorf("%s: releasing while it moves: %v", m.name, err)
			}
		}
	}
	if m.goes {
		m.holds = m.holds[1:]
	}
	for range 2 {
		g, err := s.ask(e, m.wants).ended()
		switch {
		case err == nil:
			m.got = append(m.got, g)
		case !errors.Is(err, driver.ErrHeld) && !errors.Is(err, driver.ErrUnavailable):
			s.Errorf("%s: %v", m.name, err)
		}
	}
}

// stands is called when the move is over.
func (m *halfMoved) stands(s scene, e *redislock.Engine) {
	if len(m.got) > m.room {
		s.Errorf("%s: %d got in, there was room for %d", m.name, len(m.got), m.room)
	}
	for _, w := range m.waiters {
		h := w.kept()
		if h.Token <= m.last {
			s.Errorf("%s: a waiter got token %d after %d", m.name, h.Token, m.last)
		}
		m.holds = append(m.holds, h)
	}
	for _, h := range m.got {
		if h.Token <= m.last {
			s.Errorf("%s: token %d after %d", m.name, h.Token, m.last)
		}
	}
	for _, h := range append(m.holds, m.got...) {
		if err := h.renew(); err != nil {
			s.Errorf("%s: a holder: %v", m.name, err)
		}
	}
	if closed := strings.HasPrefix(m.name, "minimum") || strings.HasPrefix(m.name, "closed"); closed {
		s.refused(e, try(request(m.name)))
	}
}
