package redislock_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/redislock"
)

// soon is how long a waiter may wait for a free name behind a frozen one: 3 s on a quiet machine.
const soon = 12 * time.Second

// TestHeadThatDoesNotFit: a frozen exclusive or heavy waiter is at the head of the queue, behind a
// reader. Other readers get in when its client no longer counts as alive.
func TestHeadThatDoesNotFit(t *testing.T) {
	t.Parallel()
	for what, head := range map[string]driver.Request{
		"exclusive": request("n"),
		"heavy":     weighing(shared(request("n"), 3), 3),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.brisk = true
			reader := shared(request("n"), 3)
			s.hold(s.engine(nil), reader)
			e, tap := s.tapped(nil)
			s.queue(e, head)
			tap.freeze(t)
			begun := time.Now()
			s.ask(s.engine(nil), reader).granted()
			if took := time.Since(begun); took > soon {
				t.Errorf("a reader waited %v behind a frozen waiter", took)
			} else {
				t.Logf("%v", took)
			}
		})
	}
}

// TestFrozenCrowd: a client with 100 waiters is frozen. The next client's waiter gets in after one
// hand-over's time.
func TestFrozenCrowd(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.brisk = true
	h := s.hold(s.engine(nil), request("n"))
	e, tap := s.tapped(nil)
	for range 100 {
		s.ask(e, request("n"))
	}
	s.until("all stand in the queue", func() bool { return s.queued("n") == 100 })
	w := s.queue(s.engine(nil), request("n"))
	tap.freeze(t)
	begun := time.Now()
	h.free()
	w.granted()
	if took := time.Since(begun); took > soon {
		t.Errorf("the name was free and unused for %v", took)
	} else {
		t.Logf("%v", took)
	}
}

// TestReleaseWithoutTheRightToPublish: the releasing client may not PUBLISH. The waiter gets in all the
// same, and the log says once why it was late and what to do.
func TestReleaseWithoutTheRightToPublish(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	o := s.user("~*")
	s.server.Do(t, "ACL", "SETUSER", "app", "-publish")
	var log lines
	mute := redislock.New(rueidisClient(t, o), patient(&redislock.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
	t.Cleanup(func() { _ = mute.Close() })
	waiting := s.engine(nil)
	for range 2 {
		h := s.hold(mute, request("n"))
		w := s.queue(waiting, request("n"))
		begun := time.Now()
		h.free()
		w.granted().free()
		if took := time.Since(begun); took > soon {
			t.Errorf("the waiter got in after %v", took)
		}
	}
	if n := log.lines(); n != 1 || !strings.Contains(log.text(), "ACL SETUSER") {
		t.Errorf("%d lines: %q", n, log.text())
	}
}

// TestHandOverWithoutTheRightToPublish: a client that may not PUBLISH hands a name over otherwise than
// by a release. The waiter gets in, and the log says why it was late.
func TestHandOverWithoutTheRightToPublish(t *testing.T) {
	t.Parallel()
	for what, handOver := range map[string]func(s scene, mute *redislock.Engine, waits func() *call) *call{
		"withdrawal": func(s scene, mute *redislock.Engine, waits func() *call) *call {
			s.hold(s.engine(nil), shared(request("n"), 3))
			head := s.queue(mute, request("n")) // exclusive, behind a reader
			w := waits()
			head.cancel()
			return w
		},
		"break": func(s scene, mute *redislock.Engine, waits func() *call) *call {
			s.hold(s.engine(nil), request("n"))
			w := waits()
			if _, err := mute.Break(s.Context(), "n", "a test"); err != nil {
				s.Error(err)
			}
			return w
		},
		"resize": func(s scene, mute *redislock.Engine, waits func() *call) *call {
			for range 3 {
				s.hold(s.engine(nil), shared(request("n"), 3))
			}
			w := waits()
			if err := mute.Resize(s.Context(), "n", 4); err != nil {
				s.Error(err)
			}
			return w
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			o := s.user("~*")
			s.server.Do(t, "ACL", "SETUSER", "app", "-publish")
			var log lines
			mute := redislock.New(rueidisClient(t, o), patient(&redislock.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
			t.Cleanup(func() { _ = mute.Close() })
			waiting := s.engine(nil)
			handOver(s, mute, func() *call { return s.queue(waiting, shared(request("n"), 3)) }).granted()
			s.until("the log says why", func() bool { return log.lines() == 1 && strings.Contains(log.text(), "ACL SETUSER") })
		})
	}
}

// lines is a log that several goroutines write.
type lines struct {
	mu  sync.Mutex // guards all
	all bytes.Buffer
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(line)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func (l *lines) lines() int { return strings.Count(l.text(), "\n") }

// TestDetachAfterAHandOver: a lock that came by a hand-over is detached at once. It lasts for its TTL.
func TestDetachAfterAHandOver(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	for _, req := range []driver.Request{request("x"), shared(request("s"), 1)} {
		h := s.hold(a, req)
		w := s.queue(b, req)
		h.free()
		g := w.granted()
		b.Detach(g.lease())
		if left := number64(t, s.server.Do(t, "PTTL", "lock:"+req.Name)); left < long.Milliseconds()/2 {
			t.Errorf("%s lasts for %d ms more", req.Name, left)
		}
	}
}

// TestHandOverOutlivesAnOutage: a lock that came by a hand-over has its TTL, also if the server can no
// longer be reached soon after.
func TestHandOverOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.brisk = true
	h := s.hold(s.engine(nil), request("n"))
	e, tap := s.tapped(nil)
	var renewed atomic.Bool
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		r := do()
		if c.Script == redislock.RenewScript && strings.HasPrefix(r.Text, "ok") {
			renewed.Store(true)
		}
		return r
	})
	locks := fencelock.New(e, nil).With(fencelock.Options{TTL: time.Minute})
	got := make(chan *fencelock.Lock, 1)
	go func() { // ends with the grant
		l, err := locks.Acquire(s.Context(), "n")
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	s.until("queued", func() bool { return e.Queued("n") == 1 })
	h.free()
	l := <-got
	s.until("confirmed", renewed.Load)
	tap.freeze(t)
	time.Sleep(2 * redislock.GrantLife)
	if err := l.Err(); err != nil {
		t.Errorf("lost after %v without a network: %v", 2*redislock.GrantLife, err)
	}
	tap.calls(nil)
	_ = l.Release()
}

// TestBrokenBeforeItsAnswer: an acquire succeeds, its answer is lost, and the lock is broken. The
// request goes on under another owner, with few calls.
func TestBrokenBeforeItsAnswer(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a := s.engine(nil)
	e, tap := s.tapped(nil)
	s.warm(e)
	s.ready(e)
	var calls atomic.Int32
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		r := do()
		if c.Script == redislock.AcquireScript && calls.Add(1) == 1 {
			if _, err := a.Break(context.Background(), "n", "a test"); err != nil {
				t.Error(err)
			}
			return redisconn.Reply{Err: errLost}
		}
		return r
	})
	s.ask(e, request("n")).granted().free()
	if n := calls.Load(); n > 10 {
		t.Errorf("%d calls of acquire", n)
	}
}

// TestAdoptionBrokenBeforeItsAnswer: an adoption succeeds, its answer is lost, and the lock is broken.
// Nobody holds the lock that was to be adopted, and the next attempt says so.
func TestAdoptionBrokenBeforeItsAnswer(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a := s.engine(nil)
	e, tap := s.tapped(nil)
	h := s.hold(a, request("n"))
	a.Detach(h.lease())
	var calls atomic.Int32
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		r := do()
		if c.Script == redislock.AdoptScript && calls.Add(1) == 1 {
			if _, err := a.Break(context.Background(), "n", "a test"); err != nil {
				t.Error(err)
			}
			return redisconn.Reply{Err: errLost}
		}
		return r
	})
	_, err := e.Adopt(t.Context(), h.lease(), try(request("n")))
	if s.says(err, driver.ErrNotHeld, ""); calls.Load() > 5 {
		t.Errorf("%d calls of adopt", calls.Load())
	}
}

// TestAskedToPollDuringAPoll: a client is asked to poll while it polls. The answer is older than that
// and does not postpone the next poll.
func TestAskedToPollDuringAPoll(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.hold(s.engine(nil), request("n"))
	e, tap := s.tapped(nil)
	s.queue(e, request("n"))
	polls := make(chan struct{}, 100)
	asked := sync.OnceFunc(func() { tap.say("advance lock:n") })
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		r := do()
		if c.Script == redislock.TouchScript {
			asked()
			polls <- struct{}{}
		}
		return r
	})
	tap.say("advance lock:n")
	<-polls
	begun := time.Now()
	<-polls
	if took := time.Since(begun); took > soon {
		t.Errorf("the next poll came after %v", took)
	}
}
