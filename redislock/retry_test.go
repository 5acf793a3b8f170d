package redislock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redislock"
)

// fencingToken is the token that the server remembers.
func (s scene) fencingToken(name string) string {
	return s.server.Do(s, "GET", "fencelock:2:fence:{lock:"+name+"}")
}

// TestAcquireRetriedFindsItsOwn: the answer of an acquire was lost. The next try
// finds what it took, with the token it had, and the lease begins anew.
func TestAcquireRetriedFindsItsOwn(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redis: an answer is lost", verdict.Safe)
	s := newScene(t)
	for _, req := range []driver.Request{request("x"), shared(request("s"), 0), shared(request("limited"), 3)} {
		a, tap := s.tapped(nil)
		if req.Mode == driver.Shared {
			s.hold(s.engine(nil), req) // not the first holder
		}
		key, token := "lock:"+req.Name, ""
		tap.loseReply(redislock.AcquireScript, func(redisconn.Reply) {
			token = s.fencingToken(req.Name)
			s.server.Do(t, "PEXPIRE", key, "60000")
		})
		h := s.hold(a, req)
		if number(h.Token) != token {
			t.Errorf("%s: token %d, the first try got %s", req.Name, h.Token, token)
		}
		if left := s.server.Do(t, "PTTL", key); number64(t, left) <= 60000 {
			t.Errorf("%s ends in %s ms, want %v", key, left, long)
		}
		h.free()
		if req.Mode == driver.Exclusive {
			s.clean(req.Name)
		}
	}
}

// TestAcquireRetriedKeepsItsPlace: the answer to a request that joined the queue
// was lost, and others joined behind it.
func TestAcquireRetriedKeepsItsPlace(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	c, tap := s.tapped(nil)
	h := s.hold(a, request("n"))
	s.hold(c, request("warm"))
	s.ready(c)
	second, again := make(chan *call, 1), make(chan struct{})
	answered := sync.OnceFunc(func() { close(again) })
	tap.loseReply(redislock.AcquireScript, func(redisconn.Reply) {
		second <- s.queue(b, request("n"))
		tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
			r := do()
			if c.Script == redislock.AcquireScript && r.Err == nil {
				answered()
			}
			return r
		})
	})
	first := s.ask(c, request("n"))
	<-again
	if n := s.queued("n"); n != 2 {
		t.Errorf("%d stand in the queue, want 2", n)
	}
	h.free()
	g := first.kept()
	next := <-second
	if next.answered() {
		t.Error("the second got in first")
	}
	g.free()
	next.granted().free()
}

// TestAcquireRetriedIsHandedTheLock: while the answer of a request that joined the
// queue was lost, it was granted; its minimum hold begins all the same.
func TestAcquireRetriedIsHandedTheLock(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, c := s.engine(nil), s.engine(nil)
	b, tap := s.tapped(nil)
	h := s.hold(a, request("n"))
	s.hold(b, request("warm"))
	s.ready(b)
	tap.loseReply(redislock.AcquireScript, func(redisconn.Reply) { h.free() })
	req := request("n")
	req.MinHold = time.Hour
	g := s.hold(b, req)
	if number(g.Token) != s.fencingToken("n") || g.TTL != long || s.queued("n") != 0 {
		t.Errorf("got %+v, and %d stand in the queue", g.Grant, s.queued("n"))
	}
	g.free()
	if held := s.refused(c, request("n")); time.Until(held.Until) < 50*time.Minute || !strings.Contains(held.Error(), "minimum hold") {
		t.Errorf("a minimum hold is told as: %v", held)
	}
}

// TestAcquireGivesUp: a server that does not answer costs a try no more than
// RetryTimeout, and nothing stays behind when it comes back.
func TestAcquireGivesUp(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, _ := s.hasty(time.Second)
	b := s.engine(nil)
	s.server.Freeze(t)
	for _, req := range []driver.Request{try(request("n")), request("n")} {
		begun := time.Now()
		_, err := s.ask(a, req).ended()
		if took := time.Since(begun); took > 15*time.Second {
			t.Errorf("a frozen server cost %v", took)
		}
		if !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("a frozen server: %v", err)
		}
		verdict.Is(t, "Redis: the server is frozen or unreachable", verdict.Refused, verdict.OfError(err))
	}
	s.server.Thaw(t)
	s.clean("n")
	s.hold(b, request("n")).free()
}

// TestAcquireIsCancelledUnanswered: the caller ends its context while the server
// is silent, and need not wait for it.
func TestAcquireIsCancelledUnanswered(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a := s.engine(nil)
	s.hold(a, request("warm")).free()
	s.server.Freeze(t)
	w := s.ask(a, request("n"))
	time.Sleep(50 * time.Millisecond)
	w.cancel()
	begun := time.Now()
	_, err := w.ended()
	if took := time.Since(begun); took > 15*time.Second || !errors.Is(err, context.Canceled) {
		t.Errorf("after %v: %v", took, err)
	}
	s.server.Thaw(t)
	s.clean("n")
}

// TestLateTryIsWithdrawn: a try that was given up reaches the server after its
// withdrawal.
func TestLateTryIsWithdrawn(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redis: a request arrives after its client gave up", verdict.Safe)
	s := newScene(t)
	a, tap := s.tapped(&redislock.Config{RetryTimeout: 200 * time.Millisecond})
	var late []func() redisconn.Reply
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		if c.Script == redislock.AcquireScript {
			late = append(late, func() redisconn.Reply { return tap.Conn.Eval(context.Background(), []redisconn.Call{c})[0] })
			return redisconn.Reply{Err: errLost}
		}
		r := do()
		for _, f := range late {
			f()
		}
		late = nil
		return r
	})
	if _, err := s.ask(a, try(request("n"))).ended(); !errors.Is(err, driver.ErrUnavailable) {
		t.Fatal(err)
	}
	s.clean("n")
}

// TestReleaseRetried: the answer of a release was lost, and the lock went on. The
// release is made again, finds that, and takes nothing from the successor.
func TestReleaseRetried(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redis: an answer is lost", verdict.Safe)
	s := newScene(t)
	a, tap := s.tapped(nil)
	b := s.engine(nil)
	h := s.hold(a, request("n"))
	w := s.queue(b, request("n"))
	tap.loseReply(redislock.ReleaseScript, func(redisconn.Reply) {})
	if err := h.release(); err != nil {
		t.Errorf("a release whose answer was lost: %v", err)
	}
	g := w.kept()
	s.gone(h.release())
	if err := g.renew(); err != nil {
		t.Errorf("the successor: %v", err)
	}
	g.free()
}

// TestWaitThatFailsLeavesNoTrace: a wait whose grant cannot be confirmed.
func TestWaitThatFailsLeavesNoTrace(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a := s.engine(nil)
	b, tap := s.tapped(nil)
	req := request("n")
	req.MinHold = time.Millisecond
	h := s.hold(a, request("n"))
	w := s.queue(b, req)
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		if c.Script == redislock.ConfirmScript {
			return redisconn.Reply{Err: redisconn.ServerError{Text: "NOPERM no"}}
		}
		return do()
	})
	h.free()
	if _, err := w.ended(); !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "NOPERM no") {
		t.Errorf("got %v", err)
	}
	s.clean("n")
	s.until("no trace in the client", func() bool { r, g, h := b.Traces(); return r+g+h == 0 })
}

// TestWithdrawalIsOfOneOwner: the first try of a waiter was of unknown outcome and
// is withdrawn. What it does next is not.
func TestWithdrawalIsOfOneOwner(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a := s.engine(nil)
	b, tap := s.tapped(nil)
	h := s.hold(a, request("n"))
	leaves := make(chan struct{}, 9)
	var lost atomic.Bool
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		r := do()
		if c.Script == redislock.LeaveScript {
			leaves <- struct{}{}
		}
		if c.Script == redislock.AcquireScript && lost.CompareAndSwap(false, true) {
			return redisconn.Reply{Err: errLost}
		}
		return r
	})
	w := s.queue(b, request("n"))
	<-leaves
	h.free()
	g := w.kept()
	if err := g.renew(); err != nil {
		t.Errorf("a withdrawal took the lock away: %v", err)
	}
}
