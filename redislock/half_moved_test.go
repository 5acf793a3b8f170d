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
	during  func()         // instead of all that: what happens while it is half moved
	after   func()         // what must follow when the move is over
}

// TestClusterHalfMovedNames: of each name some keys have moved to another node, and the
// others have not, in every combination. Holders renew and release as ever. Nobody gets in
// who would not if all were in one place, no token comes twice, nothing is made anew where a
// key is still to come, and when the move is over all holders still stand, and those who
// waited get in.
func TestClusterHalfMovedNames(t *testing.T) {
	t.Parallel()
	c := redistest.StartRedisCluster(t, 3)
	slot := c.Slot(t, "{t}")
	from := c.Owner(t, slot)
	to := c.Nodes()[(slices.Index(c.Nodes(), from)+1)%3]
	s := scene{TB: t, server: from}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	t.Cleanup(func() { _ = client.Close() })
	third := goredis.New(client, patient(nil))
	t.Cleanup(func() { _ = third.Close() })
	hasty := clusterEngineOf(t, c, &redislock.Config{RetryTimeout: 500 * time.Millisecond})
	e, other := clusterEngine(t, c), clusterEngine(t, c)
	all := append(s.halfMove(e, other, third), s.halfMoveAndAct(e, other, hasty)...)

	there := strings.Fields(from.Do(t, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), "10000"))
	moving := slices.DeleteFunc(slices.Clone(there), func(key string) bool { return !movesEarly(key) })
	c.BeginMigration(t, slot, from, to)
	c.MoveKeys(t, slot, from, to, moving...)
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
			s.server.Do(s, "SET", "fencelock:2:fence:lock:"+m.name, number(m.last), "PX", "600000")
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

// halfMoveAndAct makes names about which something else happens than acquiring, renewing and
// releasing. While a name is half moved it either works or fails without effect.
func (s scene) halfMoveAndAct(e, other, hasty *redislock.Engine) (all []*halfMoved) {
	unmoved := func(what string, err error) bool {
		if err != nil && !errors.Is(err, driver.ErrUnavailable) {
			s.Errorf("%s while it moves: %v", what, err)
		}
		return err != nil
	}
	for mask := range 16 {
		name := func(kind string) string { return fmt.Sprintf("%s-%x{t}", kind, mask) }

		broken := s.hold(e, request(name("breaking")))
		all = append(all, &halfMoved{name: broken.req.Name, during: func() {
			_, err := hasty.Break(s.Context(), broken.req.Name, "a test")
			if unmoved("breaking "+broken.req.Name, err) {
				if err := broken.renew(); err != nil {
					s.Errorf("%s: lost by a break that failed: %v", broken.req.Name, err)
				}
			}
		}, after: func() {
			_, err := hasty.Break(s.Context(), broken.req.Name, "a test")
			if err != nil && !errors.Is(err, driver.ErrNotHeld) {
				s.Errorf("%s: %v", broken.req.Name, err)
			}
			s.gone(broken.renew())
			if h := s.hold(e, request(broken.req.Name)); h.Token <= broken.Token {
				s.Errorf("%s: token %d after %d", broken.req.Name, h.Token, broken.Token)
			}
		}})

		for _, req := range []driver.Request{request(name("adopting")), shared(request(name("sharing")), 2)} {
			passes := s.hold(e, req)
			all = append(all, &halfMoved{name: req.Name, during: func() {
				next, err := passes.adoption(hasty, try(req))
				if !unmoved("adopting "+req.Name, err) {
					passes = next
				} else if err := passes.renew(); err != nil {
					s.Errorf("%s: lost by an adoption that failed: %v", req.Name, err)
				}
			}, after: func() {
				next := passes.passed(e)
				s.gone(passes.renew())
				next.free()
			}})
		}

		stays := s.hold(e, request(name("leaving")))
		leaves := s.queue(other, request(stays.req.Name))
		all = append(all, &halfMoved{name: stays.req.Name, during: func() {
			leaves.cancel()
			if _, err := leaves.ended(); err == nil {
				s.Errorf("%s: a waiter got in beside its holder", stays.req.Name)
			}
		}, after: func() {
			stays.free()
			s.until(stays.req.Name+" is free", func() bool {
				h, err := s.ask(e, try(request(stays.req.Name))).ended()
				return err == nil && h.Token > stays.Token
			})
		}})

		limit := shared(request(name("resizing")), 2)
		first := []hold{s.hold(e, limit), s.hold(other, limit)}
		all = append(all, &halfMoved{name: limit.Name, during: func() {
			unmoved("resizing "+limit.Name, hasty.Resize(s.Context(), limit.Name, 3))
		}, after: func() {
			s.resize(hasty, limit.Name, 3)
			for _, h := range append(first, s.hold(e, limit)) {
				if err := h.renew(); err != nil {
					s.Errorf("%s: a holder: %v", limit.Name, err)
				}
			}
			s.refused(e, try(limit))
		}})

		short := request(name("expiring"))
		short.TTL = time.Second
		lapses := s.hold(e, short)
		all = append(all, &halfMoved{name: short.Name, during: func() {
			for until := time.Now().Add(2 * short.TTL); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
				if h, err := s.ask(hasty, try(short)).ended(); err == nil {
					lapses = h
				} else if !errors.Is(err, driver.ErrHeld) {
					unmoved("acquiring "+short.Name, err)
				}
			}
		}, after: func() {
			s.until(short.Name+" is free", func() bool {
				h, err := s.ask(e, try(short)).ended()
				return err == nil && h.Token > lapses.Token
			})
		}})
	}
	return all
}

// movesEarly reports whether a key has moved when a name is half moved: by the number of the
// name the lock, the last token, the queue, or any other key.
func movesEarly(key string) bool {
	_, mask, _ := strings.Cut(key, "-")
	bits, _ := strconv.ParseInt(mask[:1], 16, 0)
	for i, begin := range []string{"lock:", "fencelock:2:fence:", "fencelock:2:queue:", ""} {
		if strings.HasPrefix(key, begin) {
			return bits>>i&1 == 1
		}
	}
	return false
}

// live is what happens to a half moved name.
func (m *halfMoved) live(s scene, e *redislock.Engine) {
	if m.during != nil {
		m.during()
		return
	}
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
	if m.after != nil {
		m.after()
		return
	}
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
		s.until(m.name+" is refused", func() bool { // a busy server may answer a try too late
			_, err := s.ask(e, try(request(m.name))).ended()
			if err == nil {
				s.Fatalf("%s: granted", m.name)
			}
			return errors.Is(err, driver.ErrHeld)
		})
	}
}
