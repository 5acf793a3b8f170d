package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redislock"
)

// adoption lets an engine adopt an acquisition.
func (h hold) adoption(e *redislock.Engine, req driver.Request) (hold, error) {
	g, err := e.Adopt(context.Background(), h.lease(), req)
	return hold{h.scene, e, req, g}, err
}

// passed lets an engine adopt an acquisition and fails the test on an error.
func (h hold) passed(e *redislock.Engine) hold {
	h.Helper()
	next, err := h.adoption(e, try(h.req))
	if err != nil {
		h.Fatalf("adopting %q: %v", h.req.Name, err)
	}
	if next.Token <= h.Token {
		h.Errorf("adopting token %d gave token %d", h.Token, next.Token)
	}
	return next
}

// passable are requests of the kinds that can be adopted in different ways.
func passable() []driver.Request {
	return []driver.Request{request("x"), shared(request("s"), 0), shared(request("limited"), 3)}
}

// TestAdoptRetriedFindsItsOwn: the answer of an adoption was lost. The next attempt finds what the
// first one got, with the same token and a new lease.
func TestAdoptRetriedFindsItsOwn(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redis: an answer is lost", verdict.Safe)
	s := newScene(t)
	for _, req := range passable() {
		first, token := s.hold(s.engine(nil), req), ""
		e, tap := s.tapped(nil)
		tap.loseReply(redislock.AdoptScript, func(redisconn.Reply) {
			token = s.fencingToken(req.Name)
			s.server.Do(t, "PEXPIRE", "lock:"+req.Name, "60000")
		})
		next := first.passed(e)
		if number(next.Token) != token {
			t.Errorf("%s: token %d, the first attempt got %s", req.Name, next.Token, token)
		}
		if left := s.server.Do(t, "PTTL", "lock:"+req.Name); number64(t, left) <= 60000 {
			t.Errorf("%s ends in %s ms, want %v", req.Name, left, long)
		}
		s.gone(first.release())
		next.free()
		s.clean(req.Name)
	}
}

// TestAdoptThatArrivesLate: an adoption arrives after its client has given it up. It does nothing:
// the first holder keeps its lock, or a successor does.
func TestAdoptThatArrivesLate(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redis: a request arrives after its client gave up", verdict.Safe)
	s := newScene(t)
	for _, req := range passable() {
		for _, succeeded := range []bool{false, true} {
			req.Name += "+"
			first := s.hold(s.engine(nil), req)
			e, tap := s.tapped(&redislock.Config{RetryTimeout: 300 * time.Millisecond})
			s.warm(e)
			var mu sync.Mutex // guards late
			var late []redisconn.Call
			var withdrawn atomic.Bool
			tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
				if c.Script != redislock.AdoptScript {
					r := do()
					if c.Script == redislock.LeaveScript && r.Err == nil {
						withdrawn.Store(true)
					}
					return r
				}
				mu.Lock()
				defer mu.Unlock()
				late = append(late, c)
				return redisconn.Reply{Err: errLost}
			})
			if _, err := first.adoption(e, try(req)); !errors.Is(err, driver.ErrUnavailable) {
				t.Fatalf("%s: %v", req.Name, err)
			}
			holder := first
			if succeeded {
				first.free()
				holder = s.hold(s.engine(nil), req)
			}
			s.until("it is withdrawn", withdrawn.Load)
			for _, c := range late {
				if r := s.tapOf(tap, c); r != "late" && r != "ended" && (!succeeded || r != "gone") {
					t.Errorf("%s: an adoption that arrived late: %q", req.Name, r)
				}
			}
			if err := holder.renew(); err != nil {
				t.Errorf("%s: %v", req.Name, err)
			}
			holder.free()
			s.free(req.Name)
		}
	}
}

// tapOf delivers a call and returns the first word of the answer.
func (s scene) tapOf(tap *tap, c redisconn.Call) (word string) {
	s.Helper()
	r := tap.Conn.Eval(context.Background(), []redisconn.Call{c})[0]
	if r.Err != nil {
		s.Error(r.Err)
	}
	_, _ = fmt.Sscan(r.Text, &word)
	return word
}

// TestAdoptIsGivenUp: the answers of an adoption are lost until its client gives up. What it got is
// released, a minimum hold continues, and nobody adopts it again.
func TestAdoptIsGivenUp(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	reqs := passable()
	reqs = append(reqs, minHold(request("closed"), time.Minute))
	for _, req := range reqs {
		first := s.hold(s.engine(nil), req)
		e, tap := s.tapped(&redislock.Config{RetryTimeout: 300 * time.Millisecond})
		s.warm(e)
		tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
			r := do()
			if c.Script == redislock.AdoptScript {
				r = redisconn.Reply{Err: errLost}
			}
			return r
		})
		if _, err := first.adoption(e, try(minHold(req, 0))); !errors.Is(err, driver.ErrUnavailable) {
			t.Fatalf("%s: %v", req.Name, err)
		}
		s.until("it is withdrawn", func() bool { return len(s.status(req.Name).Holders) == 0 })
		_, err := first.adoption(s.engine(nil), try(minHold(req, 0)))
		s.gone(err)
		s.gone(first.renew())
		if req.MinHold == 0 {
			s.free(req.Name)
		} else if held := s.refused(s.observer(), try(request(req.Name))); time.Until(held.Until) < 30*time.Second {
			t.Errorf("the minimum hold: %v", held)
		}
	}
}

// TestRequestsOfTheFirstAfterAnAdoption: what the first holder had sent arrives after the adoption: a
// renewal, a release, a confirmation, and the acquire once more. None has an effect, also when the
// adopter has released.
func TestRequestsOfTheFirstAfterAnAdoption(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, req := range passable() {
		e, tap := s.tapped(nil)
		var mu sync.Mutex // guards sent
		var sent []redisconn.Call
		tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, c)
			return do()
		})
		first := s.hold(e, req)
		next := first.passed(s.engine(nil))
		s.server.Do(t, "PEXPIRE", "lock:"+req.Name, "60000")
		s.gone(first.renew())
		s.gone(first.release())
		mu.Lock()
		again := sent
		mu.Unlock()
		deliver := func(when string) {
			for _, c := range again {
				switch word := s.tapOf(tap, c); word {
				case "gone", "held", "late", "ended":
				default:
					if c.Keys != nil && c.Keys[0] == "lock:"+req.Name {
						t.Errorf("%s: a request of the first holder %s: %q", req.Name, when, word)
					}
				}
			}
		}
		deliver("under the adopter")
		if left := number64(t, s.server.Do(t, "PTTL", "lock:"+req.Name)); req.Mode == driver.Exclusive && left > 60000 {
			t.Errorf("%s ends in %d ms", req.Name, left)
		}
		if err := next.renew(); err != nil {
			t.Error(err)
		}
		next.free()
		deliver("after the adopter has released")
		s.free(req.Name)
	}
}

// TestAdoptInAQuarantine: a server that may have lost data adopts nothing, since it may have lost an
// adoption. The holder renews.
func TestAdoptInAQuarantine(t *testing.T) {
	t.Parallel()
	s := newScene(t, "--appendonly", "yes", "--appendfsync", "always")
	s.most = time.Minute
	e := s.careful()
	if err := e.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	req := request("n")
	req.TTL = s.most
	first := s.hold(e, req)
	s.server.Restart(t)
	next := s.careful()
	_, err := first.adoption(next, try(req))
	s.says(err, driver.ErrUnavailable, "may have lost its data")
	if err := first.renew(); err != nil {
		t.Error(err)
	}
	s.elapse()
	first.passed(next).free()
}

// TestAdoptWithAShortLease: waiters that sleep because the first holder had a long lease are told to
// ask again when the adopter's lease may have expired.
func TestAdoptWithAShortLease(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	first := s.hold(s.engine(nil), request("n"))
	w := s.queue(s.engine(nil), request("n"))
	req := brief("n")
	next, err := first.adoption(s.engine(nil), try(req)) // is not renewed
	if err != nil {
		t.Fatal(err)
	}
	g := w.granted()
	if waited := time.Since(next.Sent); waited > 15*time.Second { // it polls every 20 s otherwise
		t.Errorf("granted %v after a lease of %v began", waited, req.TTL)
	}
	g.free()
}

// TestAdoptWithFullMemory: it needs no more memory than there is.
func TestAdoptWithFullMemory(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	var all []hold
	for _, req := range passable() {
		all = append(all, s.hold(a, req))
	}
	s.server.Do(t, "CONFIG", "SET", "maxmemory", "1")
	for _, first := range all {
		first.passed(b).free()
	}
}

// TestDetachForgets: a client remembers a lock that it detached only until the lease has ended. In
// that time a grant message that arrives late releases nothing.
func TestDetachForgets(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, tap := s.tapped(nil)
	s.ready(e)
	h := s.hold(e, request("n"))
	e.Detach(h.lease())
	tap.say(fmt.Sprintf("grant %s %d %d 0 lock:n", h.Owner, h.Token, h.Token))
	if err := e.Close(); err != nil { // waits for a release, if there is one
		t.Fatal(err)
	}
	h.passed(s.engine(nil)).free()

	e = s.engine(nil)
	e.Detach(s.hold(e, brief("n")).lease())
	s.until("it is forgotten", func() bool { _, _, holds := e.Traces(); return holds == 0 })
}

// TestAdoptByAnotherProcess: the engine of each holder is in a process of its own.
func TestAdoptByAnotherProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := examtest.PassOn(t, w, true)
	verdict.Is(t, "Redis: the holder detaches its lock, and another process adopts it", verdict.Safe, verdict.OfHolders(p.State, p.Earlier, p.Later))
	p = examtest.PassOn(t, w, false)
	verdict.Is(t, "Redis: another process adopts a lock that its holder has not detached", verdict.Guarded, verdict.OfHolders(p.State, p.Earlier, p.Later))
}
