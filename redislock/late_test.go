package redislock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redislock"
)

// kinds returns a request of each kind for names of their own.
func kinds() []driver.Request {
	closing := request("closing")
	closing.MinHold = time.Minute
	weighted := shared(request("weighted"), 9)
	weighted.Weight = 4
	return []driver.Request{
		request("exclusive"), try(request("tried")), shared(request("shared"), 0), shared(request("permit"), 2), weighted, closing,
	}
}

// free fails the test unless name can be had at once by anybody, now.
func (s scene) free(name string) {
	s.Helper()
	h, err := s.ask(s.observer(), try(request(name))).ended()
	if err != nil {
		s.Errorf("%s: %v", name, err)
		return
	}
	h.free()
}

// TestTryOfTheDead: a process sends a try and ends, or gives up and its withdrawal is
// lost. The try arrives when its time is over.
func TestTryOfTheDead(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redis: a request arrives after its client gave up", verdict.Safe)
	s := newScene(t)
	e, tap := s.tapped(&redislock.Config{RetryTimeout: 100 * time.Millisecond})
	s.warm(e)
	var late []redisconn.Call
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		if c.Script == redislock.AcquireScript {
			late = append(late, c)
		}
		return redisconn.Reply{Err: errLost}
	})
	reqs := kinds()
	for _, req := range reqs {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := e.Acquire(ctx, req); err == nil || errors.Is(err, driver.ErrHeld) {
			t.Fatalf("%s: %v", req.Name, err)
		}
		cancel()
	}
	tap.calls(nil)
	for _, c := range late {
		s.until("it is late", func() bool { return s.clock() > number64(t, c.Args[4]) })
		if r := tap.Conn.Eval(t.Context(), []redisconn.Call{c})[0]; r.Err != nil || !strings.HasPrefix(r.Text, "late ") {
			t.Errorf("%v: %+v", c.Keys, r)
		}
	}
	for _, req := range reqs {
		s.free(req.Name)
	}
}

// TestClientOfAnotherTime: a client that is wrong about the server's clock is told
// so, and gets in with its next try.
func TestClientOfAnotherTime(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.engine(nil)
	for _, name := range []string{"taken", "waited"} {
		s.hold(e, request(name)).free()
		e.Mistake(-time.Hour)
		s.hold(e, request(name)).free()
	}
	h := s.hold(s.observer(), request("waited"))
	w := s.queue(e, brief("waited"))
	e.Mistake(-time.Hour)
	s.server.Do(t, "DEL", "lock:waited", "fencelock:2:queue:{lock:waited}")
	w.granted().free()
	s.gone(h.release())
}

// TestFailedMinimumHold: a request with a minimum hold whose answer is lost, and that
// gives up, leaves the name open.
func TestFailedMinimumHold(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, script := range []*redisconn.Script{redislock.AcquireScript, redislock.ConfirmScript} {
		cfg := &redislock.Config{}
		if script == redislock.AcquireScript {
			cfg.RetryTimeout = 300 * time.Millisecond
		}
		e, tap := s.tapped(cfg)
		s.warm(e)
		s.ready(e)
		req := request("n")
		req.MinHold = time.Minute
		tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
			r := do()
			if c.Script == script && (strings.HasPrefix(r.Text, "ok") || strings.HasPrefix(r.Text, "granted")) {
				return redisconn.Reply{Err: errLost}
			}
			return r
		})
		var h hold
		if script == redislock.ConfirmScript {
			h = s.hold(s.observer(), request("n"))
		}
		c := s.ask(e, req)
		if script == redislock.ConfirmScript {
			s.until("queued", func() bool { return s.queued("n") == 1 })
			h.free()
			s.until("closed", func() bool { return !s.status("n").NotBefore.IsZero() })
			c.cancel()
		}
		if _, err := c.ended(); err == nil {
			t.Fatal("granted")
		}
		s.until("a withdrawal", func() bool { return len(s.status("n").Holders) == 0 })
		s.free("n")
	}
}
