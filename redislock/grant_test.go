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

// TestGrantBeforeEnqueueReply: the lock is handed over before the waiter has read
// that it was queued.
func TestGrantBeforeEnqueueReply(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a := s.engine(nil)
	b, tap := s.tapped(nil)
	h := s.hold(a, request("n"))
	s.hold(b, request("warm")) // its subscription stands
	s.ready(b)
	told := make(chan struct{}, 9)
	tap.texts(func(text string, pass func(string)) { pass(text); told <- struct{}{} })
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		r := do()
		if c.Script == redislock.AcquireScript && strings.HasPrefix(r.Text, "queued") {
			h.free()
			<-told
		}
		return r
	})
	begun := time.Now()
	g := s.hold(b, request("n"))
	prompt := time.Since(begun) < redislock.GrantLife/2 // or it was confirmed
	if g.Token <= h.Token || prompt && g.TTL != redislock.GrantLife {
		t.Errorf("got %+v, want a short grant after token %d", g.Grant, h.Token)
	}
	g.free()
	s.clean("n")
}

// TestBreakBeforeAGrantIsTaken: the lock is broken after the server has confirmed a grant,
// and before the waiter has read that. Its context is cancelled all the same.
func TestBreakBeforeAGrantIsTaken(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a := s.engine(nil)
	b, tap := s.tapped(nil)
	lost := make(chan error, 2)
	req := request("n")
	req.MinHold, req.OnLost = time.Millisecond, func(cause error) { lost <- cause } // it is confirmed
	told := make(chan struct{}, 9)
	tap.texts(func(text string, pass func(string)) {
		pass(text)
		if strings.HasPrefix(text, "lost ") {
			told <- struct{}{}
		}
	})
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		r := do()
		if c.Script == redislock.ConfirmScript {
			if _, err := a.Break(t.Context(), "n", "a test"); err != nil {
				t.Error(err)
			}
			<-told
		}
		return r
	})
	h := s.hold(a, request("n"))
	w := s.queue(b, req)
	h.free()
	g := w.granted()
	select {
	case err := <-lost:
		if !errors.Is(err, driver.ErrLost) || !strings.Contains(err.Error(), "a test") {
			t.Errorf("the holder gets %v", err)
		}
	case <-time.After(patience):
		t.Error("the holder is not told of the break")
	}
	s.gone(g.renew())
}

// ready waits until an engine knows that its subscription stands: its requests then
// join the queue with their first try.
func (s scene) ready(e *redislock.Engine) {
	s.Helper()
	s.until("a subscription", e.Listens)
}

// TestLostPublish: a waiter whose grant was never announced learns of it by its
// own next look.
func TestLostPublish(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a := s.engine(nil)
	b, tap := s.tapped(nil)
	for _, req := range []driver.Request{brief("x"), shared(brief("s"), 0)} {
		h := s.hold(a, request(req.Name))
		w := s.queue(b, req)
		tap.texts(func(string, func(string)) {})
		h.free()
		g := w.granted()
		if g.TTL != time.Second {
			t.Errorf("%s: an unannounced grant runs for %v, want a confirmed second", req.Name, g.TTL)
		}
		g.free()
		tap.texts(nil)
		s.clean(req.Name)
	}
}

// TestCancelledInTheSameInstant: a waiter gives up while its grant is on its way.
// Nothing leaks, and the next one gets in.
func TestCancelledInTheSameInstant(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, c := s.engine(nil), s.engine(nil)
	b, tap := s.tapped(nil)
	for _, read := range []bool{false, true} {
		h := s.hold(a, request("n"))
		w := s.queue(b, request("n"))
		next := s.queue(c, request("n"))
		granted := make(chan struct{})
		tap.texts(func(text string, pass func(string)) {
			if strings.HasPrefix(text, "grant ") {
				w.cancel()
				if !read {
					<-w.done
				}
				pass(text)
				close(granted)
			}
		})
		h.free()
		<-granted
		if g, err := w.ended(); err == nil {
			g.free()
		} else if !errors.Is(err, context.Canceled) || !errors.Is(err, driver.ErrHeld) {
			t.Errorf("a cancelled wait: %v", err)
		}
		next.granted().free()
		s.clean("n")
		tap.texts(nil)
	}
	if requests, groups, holds := b.Traces(); requests+groups+holds > 0 {
		s.until("groups end", func() bool { r, g, h := b.Traces(); return r+g+h == 0 })
	}
}

// TestUnknownGrantIsReleased: a grant for an owner that nobody waits for goes back
// at once.
func TestUnknownGrantIsReleased(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, c := s.engine(nil), s.engine(nil)
	b, tap := s.tapped(nil)
	const nobody = "00000000-0000-7000-8000-000000000000"
	returned := make(chan struct{}, 10)
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		if c.Script == redislock.ReleaseScript && strings.Contains(strings.Join(c.Args, " "), nobody) {
			returned <- struct{}{}
		}
		return do()
	})
	for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared} {
		req := request("n")
		req.Mode = mode
		h := s.hold(a, request("n"))
		w := s.queue(b, req)
		entry := s.server.Do(t, "ZRANGE", "fencelock:2:queue:{lock:n}", "0", "0")
		ghost := strings.Replace(entry, entry[:36], nobody, 1)
		s.server.Do(t, "ZADD", "fencelock:2:queue:{lock:n}", "1", ghost)
		next := s.queue(c, request("n"))
		freed := time.Now()
		h.free()
		w.granted().free()
		took := time.Since(freed)
		next.granted().free()
		select {
		case <-returned:
		default:
			if took < redislock.LongGrant {
				t.Error("a ghost's grant was not released")
			}
		}
		s.clean("n")
	}
}

// TestLateMessageAfterTaking: the announcement of a grant that the waiter found by
// itself comes when it holds the lock, and does no harm.
func TestLateMessageAfterTaking(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a := s.engine(nil)
	b, tap := s.tapped(nil)
	h := s.hold(a, request("n"))
	w := s.queue(b, request("n"))
	late := make(chan string, 100)
	tap.texts(func(text string, pass func(string)) {
		if strings.HasPrefix(text, "grant ") {
			late <- text
		}
	})
	h.free()
	s.until("taken", func() bool { tap.say("advance lock:n"); return w.answered() })
	g := w.granted()
	tap.say(<-late)
	time.Sleep(50 * time.Millisecond) // a release, were there one, is over by now
	if err := g.renew(); err != nil {
		t.Errorf("after a late message: %v", err)
	}
}

// TestGrantThatLayUnread: the message of a grant was read when most of the grant
// was over. The lease is counted from a request of the waiter's own.
func TestGrantThatLayUnread(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redis: a grant message stays unread in a frozen waiter", verdict.Safe)
	s := newScene(t)
	s.brisk = true
	a, c := s.engine(nil), s.engine(nil)
	b, tap := s.tapped(nil)
	h := s.hold(a, request("n"))
	w := s.queue(b, request("n"))
	tap.texts(func(text string, pass func(string)) {
		time.Sleep(1200 * time.Millisecond)
		pass(text)
	})
	freed := time.Now()
	h.free()
	g := w.granted()
	if g.Sent.Before(freed) || g.TTL != long {
		t.Errorf("a lease of %v from %v after the release, want a confirmed one", g.TTL, g.Sent.Sub(freed))
	}
	g.free()

	h = s.hold(a, request("n"))
	w = s.queue(b, request("n"))
	over := make(chan struct{})
	tap.texts(func(text string, pass func(string)) {
		if strings.HasPrefix(text, "grant ") {
			stop := make(chan struct{})
			tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
				if c.Script == redislock.TouchScript || c.Script == redislock.TouchAllScript {
					<-stop // it would find its grant
				}
				return do()
			})
			s.ask(c, minHold(request("n"), time.Millisecond)).granted() // others look, and take over
			close(stop)
			pass(text)
			close(over)
		}
	})
	h.free()
	<-over
	s.until("it waits again", func() bool { return b.Queued("n") == 1 || w.answered() })
	if w.answered() {
		t.Error("a waiter believed in a grant that had run out")
	}
}
