package recordlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/clock"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/recordlock"
)

// storm lets clients use one name while their requests are late, repeated or without an answer.
type storm struct {
	scene
	clients []*recordlock.Engine
	late    sync.WaitGroup // Swaps that are not executed yet

	mu    sync.Mutex // guards holds
	holds []*held
}

// held is the time for which a holder relies on its lock, at most.
type held struct {
	token        int64
	req          driver.Request
	from, closed time.Time // from the answer on; closed is the end of its minimum hold
	until        time.Time
}

const most = 4 // the greatest limit

// weather makes the connection of a client unreliable.
func (s *storm) weather(next func() error) error {
	switch n := rand.IntN(100); {
	case n < 8: // the answer is lost
		_ = next()
	case n < 14: // the store executes it later
		s.late.Go(func() {
			time.Sleep(rand.N(20 * time.Second))
			_ = next()
		})
		time.Sleep(rand.N(2 * time.Second))
	case n < 20: // nothing arrives
	case n < 26: // it arrives twice
		err := next()
		_ = next()
		return err
	default:
		return next()
	}
	return driver.ErrUnavailable
}

// shift changes the delays of the connections, and sets the clock of the store or those of all clients.
func (s *storm) shift(links []*link, kind string) {
	hour, ahead := time.Duration(rand.IntN(3)-1)*time.Hour, time.Duration(0)
	switch kind {
	case storeJumps:
		ahead = hour
	case clientsJump:
		clock.Step(hour)
	}
	for _, l := range links {
		l.set(func(l *link) {
			l.before, l.after, l.ahead = rand.N(30*time.Millisecond), rand.N(30*time.Millisecond), ahead
			if rand.IntN(20) == 0 {
				l.after = rand.N(3 * time.Second)
			}
			l.down, l.blind = rand.IntN(15) == 0, rand.IntN(15) == 0
		})
	}
}

func (s *storm) any() *recordlock.Engine { return s.clients[rand.IntN(len(s.clients))] }

// ask returns a random request.
func (s *storm) ask() driver.Request {
	req := request()
	req.TTL, req.Wait = time.Second+rand.N(4*time.Second), rand.IntN(4) > 0
	switch rand.IntN(3) {
	case 0:
		req.Mode, req.Limit, req.Weight = driver.Shared, most, 1+rand.IntN(most)
	case 1:
		req.MinHold = rand.N(300 * time.Millisecond)
	}
	if rand.IntN(3) == 0 {
		req.OnLost = func(error) {}
	}
	return req
}

// got records that a grant has arrived.
func (s *storm) got(g driver.Grant, req driver.Request) *held {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &held{token: g.Token, req: req, from: time.Now(), closed: g.Sent.Add(req.MinHold), until: g.Sent.Add(g.TTL)}
	if h.from.Before(h.until) { // otherwise the answer has arrived after the end of the lease
		s.holds = append(s.holds, h)
	}
	return h
}

// ends records that a holder does not rely on its lock from now on.
func (s *storm) ends(h *held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Before(h.until) {
		h.until = now
	}
}

// use acquires the name and does something with it.
func (s *storm) use() {
	ctx, cancel := contextFor(s.scene, []time.Duration{time.Millisecond, 50 * time.Millisecond, 30 * time.Second}[rand.IntN(3)])
	defer cancel()
	e, req := s.any(), s.ask()
	g, err := e.Acquire(ctx, req)
	if err != nil {
		if !errors.Is(err, driver.ErrHeld) && !errors.Is(err, driver.ErrUnavailable) {
			s.Errorf("acquire: %v", err)
		}
		return
	}
	h, l := s.got(g, req), lease(g)
	l.TTL, l.Mode = req.TTL, req.Mode
	ctx, cancel = contextFor(s.scene, 10*time.Second)
	defer cancel()
	switch rand.IntN(8) {
	case 0: // it dies
		return
	case 1: // it renews
		for range 5 {
			time.Sleep(req.TTL / 4)
			sent := time.Now()
			limited, cancel := contextFor(s.scene, req.TTL/2)
			if err := e.Renew(limited, []driver.Lease{l})[0]; err == nil && time.Now().Before(h.until) {
				s.mu.Lock()
				h.until = sent.Add(req.TTL)
				s.mu.Unlock()
			}
			cancel()
		}
	case 2:
		s.ends(h)
		h.closed = time.Time{}
		_, _ = s.any().BreakOwner(ctx, name, g.Owner, "a storm")
		return
	case 3:
		s.ends(h)
		h.closed = time.Time{}
		next := req
		next.MinHold = 0
		other := s.any()
		if g, err := other.Adopt(ctx, l, next); err == nil {
			h, e, l.Owner, l.Token = s.got(g, next), other, g.Owner, g.Token
		}
	default:
		time.Sleep(rand.N(5 * time.Millisecond))
	}
	s.ends(h)
	_ = e.Release(ctx, l)
}

// judge checks that no two conflicting holders relied on the name at once, and the order of their tokens.
func (s *storm) judge() {
	for _, a := range s.holds {
		weight := 0
		for _, b := range s.holds {
			shared := a.req.Mode == driver.Shared && b.req.Mode == driver.Shared
			switch {
			case a == b, a.token == b.token:
				if a != b {
					s.Errorf("token %d twice", a.token)
				}
			case b.from.Before(a.from), b.from.Equal(a.from) && b.token < a.token:
				if shared && a.from.Before(b.until) {
					weight += b.req.Weight
				}
			case shared:
			case b.from.Before(a.until):
				s.Errorf("%d relied on the name until %v, and %d from %v", a.token, a.until, b.token, b.from)
			case b.token < a.token:
				s.Errorf("token %d came after %d", b.token, a.token)
			case b.from.Before(a.closed):
				s.Errorf("%d has the name from %v although %d closed it until %v", b.token, b.from, a.token, a.closed)
			}
		}
		if a.req.Mode == driver.Shared && weight+a.req.Weight > most {
			s.Errorf("%d held a weight of %d beside %d", a.token, a.req.Weight, weight)
		}
	}
}

const (
	storeJumps  = "the clock of the store jumps"
	clientsJump = "the clocks of the clients jump"
)

// TestStorm lets late, repeated and lost requests meet holds of some milliseconds, contexts of one
// millisecond, weights, a limit that changes, breaks and adoptions, on records that are polled, report
// changes or have no clock. It has a storm of each, and many with FENCELOCK_SLOW.
func TestStorm(t *testing.T) {
	storms := 1
	if os.Getenv("FENCELOCK_SLOW") != "" {
		storms = 100
	}
	for i := range storms {
		for _, kind := range []string{"polled", storeJumps, clientsJump, "no clock", "reported"} {
			t.Run(fmt.Sprint(kind, " ", i), func(t *testing.T) {
				play(t, kind != "no clock", func(sc scene) { rage(&storm{scene: sc}, kind) })
			})
		}
	}
}

func rage(s *storm, kind string) {
	var links []*link
	for range 4 {
		e, l := s.client()
		if kind == "reported" {
			_ = e.Close()
			e = recordlock.New(reporting{l, s.store}, nil)
			s.Cleanup(func() { _ = e.Close() })
		}
		l.swap = s.weather
		s.clients, links = append(s.clients, e), append(links, l)
	}
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() { // ends with the loop
			for range 10 {
				s.use()
				time.Sleep(rand.N(2 * time.Second))
			}
		})
	}
	ctx, cancel := context.WithCancel(s.Context())
	var weather sync.WaitGroup
	weather.Go(func() { // ends with ctx
		for ctx.Err() == nil {
			time.Sleep(rand.N(2 * time.Second))
			s.shift(links, kind)
			_ = s.any().Resize(ctx, name, 1+rand.IntN(most))
		}
	})
	all.Wait()
	cancel()
	weather.Wait()
	clock.Step(0)
	for _, l := range links {
		l.set(func(l *link) { l.before, l.after, l.ahead, l.down, l.blind, l.swap = 0, 0, 0, false, false, nil })
	}
	time.Sleep(time.Minute) // all leases are over, and requests that had left are done
	s.late.Wait()
	s.judge()
	e, _ := s.client()
	certain := kind == "polled" || kind == "reported" // all clocks agree
	if list, err := e.List(s.Context(), driver.Query{}); certain && (err != nil || len(list) > 0) {
		s.Errorf("at the end: %+v, %v", list, err)
	}
	s.acquire(e, waiting())
	s.Logf("%d grants", len(s.holds))
}

// reporting are records that report changes over an unreliable connection.
type reporting struct {
	*link
	store *memlock.Engine
}

func (r reporting) Await(ctx context.Context, key, version string) (driver.Record, error) {
	rec, err := r.store.Records().(driver.Awaiter).Await(ctx, key, version)
	time.Sleep(rand.N(50 * time.Millisecond))
	return rec, err
}
