package redislock_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/redislock"
)

// TestBegin: the local time of a grant is never put too late.
func TestBegin(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		what   string
		sent   time.Time
		d      time.Duration
		latest time.Duration // after sent; negative means that there is no telling
	}{
		{"at once", now.Add(-time.Second), 0, 0},
		{"a clock that runs fast", now.Add(-200 * time.Second), 100 * time.Second, 99 * time.Second},
		{"before the sample", now.Add(-time.Second), -time.Millisecond, -1},
		{"a clock that was stepped forward", now.Add(-time.Second), time.Minute, -1},
		{"no sample", time.Time{}, time.Second, -1},
	} {
		begin := redislock.Begin(c.sent, c.d, time.Time{})
		if c.latest < 0 && !begin.IsZero() || c.latest >= 0 && !begin.Equal(c.sent.Add(c.latest)) {
			t.Errorf("%s: %v after the request, want %v", c.what, begin.Sub(c.sent), c.latest)
		}
	}
	sent, asked := now.Add(-time.Second), now.Add(-time.Second/2)
	if begin := redislock.Begin(sent, time.Millisecond, asked); !begin.Equal(asked) {
		t.Errorf("%v before the request that was granted", asked.Sub(begin))
	}
	if begin := redislock.Begin(sent, -time.Millisecond, asked); !begin.IsZero() {
		t.Errorf("before the sample: %v after the request", begin.Sub(sent))
	}
}

// TestResubscriptionForgetsTheSample: after a reconnect the clock may be another
// server's, so a grant is confirmed.
func TestResubscriptionForgetsTheSample(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a := s.engine(nil)
	b, tap := s.tapped(nil)
	h := s.hold(a, request("n"))
	w := s.queue(b, request("n"))
	tap.calls(func(c redislock.Call, do func() redislock.Reply) redislock.Reply {
		if c.Script == redislock.TouchScript {
			return redislock.Reply{Err: errLost}
		}
		return do()
	})
	tap.disconnect()()
	s.until("it no longer listens, and listens again", func() bool { return tap.subscriptions() > 1 })
	s.ready(b)
	h.free()
	if g := w.granted(); g.TTL != long {
		t.Errorf("a grant of %v was believed by another server's clock", g.TTL)
	}
}

// TestSecondSeat: a shared waiter is let in twice, since it took its place again
// when it had been let in already. It keeps one seat.
func TestSecondSeat(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, c := s.engine(nil), s.engine(nil)
	b, tap := s.tapped(nil)
	h := s.hold(a, request("n"))
	other := s.queue(c, shared(request("n"), 3))
	w := s.queue(b, atLeast(shared(request("n"), 3), time.Millisecond))
	entry := s.server.Do(t, "ZRANGE", "queue:{lock:n}", "-1", "-1")
	tap.calls(func(c redislock.Call, do func() redislock.Reply) redislock.Reply {
		if c.Script == redislock.ConfirmScript {
			tap.calls(nil)
			s.server.Do(t, "ZADD", "queue:{lock:n}", "1", entry)
			s.refused(a, try(request("n"))) // lets it in again
			time.Sleep(100 * time.Millisecond)
		}
		return do()
	})
	h.free()
	g := w.granted()
	other.kept()
	s.until("one seat each", func() bool { return s.server.Do(t, "ZCARD", "meta:{lock:n}") == "2" })
	if err := g.renew(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(s.server.Do(t, "ZRANGE", "meta:{lock:n}", "0", "-1"), g.Owner+" "+number(g.Token)+" ") {
		t.Error("the wrong seat was given back")
	}
}

// TestLeavingIsNotDying: the last known waiter of a process gives up while another
// is about to join. The process is not taken for dead.
func TestLeavingIsNotDying(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, c := s.engine(nil), s.engine(nil)
	b, tap := s.tapped(nil)
	h := s.hold(a, request("n"))
	w := s.queue(b, request("n"))
	joined, left := make(chan struct{}), make(chan struct{})
	join, leave := sync.OnceFunc(func() { close(joined) }), sync.OnceFunc(func() { close(left) })
	tap.calls(func(c redislock.Call, do func() redislock.Reply) redislock.Reply {
		switch c.Script {
		case redislock.AcquireScript:
			r := do()
			join()
			<-left
			return r
		case redislock.LeaveScript:
			<-joined
			defer leave()
		}
		return do()
	})
	w.cancel()
	first := s.ask(b, request("n"))
	_, _ = w.ended()
	tap.calls(nil)
	second := s.queue(c, request("n"))
	h.free()
	g := first.kept()
	if second.answered() {
		t.Error("it lost its place")
	}
	g.free()
}
