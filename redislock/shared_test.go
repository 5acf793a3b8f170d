package redislock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock"
)

// TestManySharedWaiters: more shared waiters than one script lets in all get in at
// once, with tokens of their own and one floor.
func TestManySharedWaiters(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a := s.engine(nil)
	crowd := []*redislock.Engine{s.engine(nil), s.engine(nil), s.engine(nil)}
	h := s.hold(a, request("n"))
	var ws []*call
	for i := range 200 {
		ws = append(ws, s.ask(crowd[i%3], shared(request("n"), 0)))
	}
	s.until("all stand in the queue", func() bool { return s.queued("n") == 200 })
	begun := time.Now()
	h.free()
	var renewed sync.WaitGroup
	for _, w := range ws {
		renewed.Go(func() { // ends with the wait
			if <-w.done; w.err == nil {
				_ = w.hold.renew() // see kept
			}
		})
	}
	tokens := map[int64]bool{}
	for _, w := range ws {
		g := w.granted()
		if tokens[g.Token] = true; g.Floor > g.Token || g.Floor <= h.Token {
			t.Errorf("token %d with floor %d after %d", g.Token, g.Floor, h.Token)
		}
	}
	renewed.Wait()
	t.Logf("200 shared waiters got in within %v", time.Since(begun))
	if len(tokens) != 200 {
		t.Errorf("%d tokens for 200 holders", len(tokens))
	}
	for _, w := range ws {
		w.hold.free()
	}
	// A slow machine lets seats lapse before their holders have read of them. The next holder
	// deletes what is left of these.
	s.until("nobody holds it or waits for it", func() bool { return s.server.Do(s, "EXISTS", "lock:n", "fencelock:2:queue:{lock:n}") == "0" })
	s.hold(a, shared(request("n"), 0)).free()
	s.clean("n")
}

// TestLimitMismatch: a request with another limit is refused, whether it comes
// while the lock is shared or waits since before.
func TestLimitMismatch(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	h := s.hold(a, request("n"))
	two, three := s.queue(a, shared(request("n"), 2)), s.queue(b, shared(request("n"), 3))
	again := s.queue(b, shared(request("n"), 2))
	h.free()
	g, g2 := two.kept(), again.kept()
	mismatched := func(err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "with a limit of 2") {
			t.Errorf("another limit: %v", err)
		}
	}
	_, err := three.ended()
	mismatched(err)
	for _, wait := range []bool{true, false} {
		req := shared(request("n"), 0)
		req.Wait = wait
		_, err = s.ask(b, req).ended()
		mismatched(err)
	}
	s.refused(b, shared(request("n"), 2))
	w := s.queue(b, shared(request("n"), 2))
	g.free()
	third := w.granted()
	g2.free()
	third.free()
	s.clean("n")
	s.until("no trace in the client", func() bool { r, g, h := b.Traces(); return r+g+h == 0 })
}

// TestLostSharedAnnouncement: the announcement of a shared grant that is not the
// first one is lost, and the waiter gets in all the same, once.
func TestLostSharedAnnouncement(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a, c := s.engine(nil), s.engine(nil)
	b, tap := s.tapped(nil)
	h := s.hold(a, request("n"))
	first, second := s.queue(c, shared(request("n"), 2)), s.queue(b, shared(brief("n"), 2))
	tap.texts(func(string, func(string)) { tap.texts(nil) })
	h.free()
	g := first.kept()
	g2 := second.granted()
	if n := len(s.status("n").Holders); n > 2 { // the second is brief
		t.Errorf("%d holders, want 2", n)
	}
	g2.free()
	g.free()
	s.clean("n")
}

// keep renews an acquisition until stop.
func keep(h hold) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // ends with stop
		defer close(done)
		for ctx.Err() == nil {
			_ = h.renew()
			time.Sleep(100 * time.Millisecond)
		}
	}()
	return func() { cancel(); <-done }
}
