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
)

// halfMoved is a name of which some keys have moved to another node.
type halfMoved struct {
	name  string
	holds []hold
	wants driver.Request // is tried twice
	room  int            // for so many
	last  int64          // token
}

// TestClusterHalfMovedNames: of each name some keys have moved to another node, and the
// others have not, in every combination. Nobody gets in who would not if all were in one
// place, no token comes twice, and when the move is over all holders still stand.
func TestClusterHalfMovedNames(t *testing.T) {
	t.Parallel()
	c := redistest.StartRedisCluster(t, 3)
	slot := c.Slot("{t}")
	from := c.Owner(t, slot)
	to := c.Nodes()[(slices.Index(c.Nodes(), from)+1)%3]
	s := scene{TB: t, server: from}
	e := clusterEngine(t, c)
	var all []*halfMoved
	var moving []string
	for what, begin := range map[string]func(*halfMoved){
		"free": func(m *halfMoved) {
			s.server.Do(t, "SET", "fencelock:1:fence:lock:"+m.name, fmt.Sprintf("%d %d - 0", m.last, m.last), "PX", "600000")
			m.room = 1
		},
		"held":   func(m *halfMoved) { m.holds = append(m.holds, s.hold(e, request(m.name))) },
		"closed": func(m *halfMoved) { s.hold(e, minHold(request(m.name), time.Hour)).free() },
		"shared": func(m *halfMoved) {
			m.wants, m.room = shared(m.wants, 2), 1
			m.holds = append(m.holds, s.hold(e, m.wants))
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
	} {
		for mask := 0; mask < 16; mask++ {
			m := &halfMoved{name: fmt.Sprintf("%s-%x{t}", what, mask), last: time.Now().Add(24 * time.Hour).UnixMicro()}
			m.wants = try(request(m.name))
			begin(m)
			all = append(all, m)
			for i, key := range []string{"lock:", "fencelock:1:fence:lock:", "shared:lock:", "meta:lock:"} {
				if mask>>i&1 == 1 {
					moving = append(moving, key+m.name)
				}
			}
		}
	}
	there := strings.Fields(from.Do(t, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), "10000"))
	moving = slices.DeleteFunc(moving, func(key string) bool { return !slices.Contains(there, key) })
	c.BeginMigration(t, slot, from, to)
	c.MoveKeys(t, slot, from, to, moving...)
	hasty := clusterEngineOf(t, c, &redislock.Config{RetryTimeout: 500 * time.Millisecond})
	var tries sync.WaitGroup
	for _, m := range all {
		tries.Go(func() {
			for range 2 {
				g, err := hasty.Acquire(t.Context(), m.wants)
				switch {
				case err == nil:
					m.holds = append(m.holds, hold{s, e, m.wants, g})
					m.room--
				case !errors.Is(err, driver.ErrHeld) && !errors.Is(err, driver.ErrUnavailable):
					t.Errorf("%s: %v", m.name, err)
				}
			}
		})
	}
	tries.Wait()
	c.MoveKeys(t, slot, from, to)
	c.EndMigration(t, slot, from, to)
	for _, m := range all {
		if m.room < 0 {
			t.Errorf("%s: %d got in too many", m.name, -m.room)
		}
		for _, h := range m.holds {
			if strings.HasPrefix(m.name, "free") && h.Token <= m.last {
				t.Errorf("%s: token %d after %d", m.name, h.Token, m.last)
			}
			if err := h.renew(); err != nil {
				t.Errorf("%s: a holder: %v", m.name, err)
			}
		}
	}
}
