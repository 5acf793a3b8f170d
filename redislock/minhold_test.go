package redislock_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/redislock"
)

func minHold(r driver.Request, d time.Duration) driver.Request {
	r.MinHold = d
	return r
}

// TestMinimumHoldAfterHandOver: it begins when the waiter knows of its grant, and
// is not there when the waiter never took it.
func TestMinimumHoldAfterHandOver(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, c := s.engine(nil), s.engine(nil)
	b, tap := s.tapped(nil)
	h := s.hold(a, request("n"))
	w := s.queue(b, minHold(request("n"), time.Hour))
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		if c.Script == redislock.ConfirmScript {
			w.cancel()
			return redisconn.Reply{Err: errLost}
		}
		return do()
	})
	h.free()
	if _, err := w.ended(); err == nil {
		t.Fatal("granted")
	}
	s.hold(c, request("n")).free()

	tap.calls(nil)
	h = s.hold(a, request("n"))
	w = s.queue(b, minHold(request("n"), time.Hour))
	h.free()
	g := w.granted()
	g.free()
	held := s.refused(c, request("n"))
	if left := time.Until(held.Until); left < 59*time.Minute || left > time.Hour || !strings.Contains(held.Error(), "minimum hold") {
		t.Errorf("refused as %v", held)
	}
	if st := s.status("n"); time.Until(st.NotBefore) < 59*time.Minute {
		t.Errorf("listed as %+v", st)
	}
}

// TestNextAfterAMinimumHold: who waits for a hand-over gets in when the minimum hold ends that
// the holder before has left, not when it would have looked by itself.
func TestNextAfterAMinimumHold(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	h := s.hold(a, request("n"))
	first := s.queue(b, minHold(request("n"), time.Second))
	next := s.queue(b, request("n"))
	h.free()
	g := first.granted()
	begun := time.Now()
	g.free()
	next.granted().free()
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("a waiter got in %v after a release with a minimum hold of a second", took)
	}
}

// TestReleasedBeforeItKnows: a lock with a minimum hold is released before a waiter has read
// that it stands in the queue. It polls when the minimum hold ends.
func TestReleasedBeforeItKnows(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a := s.engine(nil)
	b, tap := s.tapped(nil)
	s.hold(b, request("warm"))
	s.ready(b)
	h := s.hold(a, minHold(request("n"), time.Second))
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	defer release()
	tap.calls(func(_ redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		r := do()
		if strings.HasPrefix(r.Text, "queued ") {
			<-released
		}
		return r
	})
	w := s.ask(b, request("n"))
	s.until("queued", func() bool { return s.queued("n") == 1 })
	begun := time.Now()
	h.free()
	release()
	w.granted().free()
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("a waiter got in %v after a release with a minimum hold of a second", took)
	}
}
