package redislock_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver/drivertest/proc"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redislock"
)

// TestFrozenProcess: a process with many waiters is frozen. It costs one grant TTL
// once, and gets its places back when it is thawed.
func TestFrozenProcess(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redis: a waiter freezes", verdict.Safe)
	s := newScene(t)
	s.brisk = true
	c := s.engine(nil)
	a := s.engine(nil) // its release hands the lock to the frozen process
	frozen := proc.Start(t, "patient", s.server.Addr())
	h := s.hold(a, request("n"))
	var lost []*call
	for range 5 {
		lost = append(lost, s.queue(frozen, request("n")))
	}
	others := s.lineUp(4, request("n"), c)
	frozen.Freeze(t)
	begun := time.Now()
	h.free()
	for _, w := range others[:3] {
		w.granted().free()
	}
	last := others[3].kept()
	took := time.Since(begun)
	if took < 1900*time.Millisecond || took > 15*time.Second {
		t.Errorf("a frozen process cost %v, want one grant of 2 s", took)
	}
	t.Logf("a frozen process with five waiters cost %v", took)
	late := s.queue(a, request("n"))
	frozen.Thaw(t)
	s.until("the thawed process is back in front", func() bool {
		entries := strings.Split(s.server.Do(t, "ZRANGE", "fencelock:2:queue:{lock:n}", "0", "-1"), "\n")
		return len(entries) == 6 && strings.Contains(entries[5], a.ID())
	})
	last.free()
	s.inOrder(append(lost, late)...)
}

// TestHailsDoNotSilenceAClient: a client that is asked again and again to look later polls in time.
// While the first poll is answered a grant arrives, so the server drops the client when that grant
// expires, unless it polls before. The answer is older than the grant and changes nothing.
func TestHailsDoNotSilenceAClient(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a := s.engine(nil)
	b, tap := s.tapped(nil)
	h := s.hold(a, request("n"))
	w, next := s.queue(b, brief("n")), s.queue(b, request("n"))
	var polls atomic.Int32
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		r := do()
		if c.Script == redislock.TouchScript && polls.Add(1) == 1 {
			h.free()
			w.granted()
		}
		return r
	})
	polled := func(n int32) func() bool {
		return func() bool { tap.say("advance lock:n"); return polls.Load() >= n }
	}
	s.until("the first poll", polled(1))
	begun := time.Now()
	s.until("the second poll", polled(2))
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("after a grant of a second it polled after %v", took)
	}
	next.granted().free()
}

// TestTakeover: a holder dies. When its lease is over exactly one of many waiters
// in many clients gets in.
func TestTakeover(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redis: the holder is killed", verdict.Safe)
	s := newScene(t)
	req := request("n")
	req.TTL = 4 * time.Second
	stop := keep(s.hold(s.engine(nil), req))
	var ws []*call
	for range 8 {
		ws = append(ws, s.queue(s.engine(nil), request("n")))
	}
	stop() // and it is never released
	begun := time.Now()
	first := ws[0].kept()
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("the takeover took %v", took)
	}
	time.Sleep(300 * time.Millisecond)
	for i, w := range ws[1:] {
		if w.answered() {
			t.Errorf("waiter %d got in as well", i+2)
		}
	}
	first.free()
	s.inOrder(ws[1:]...)
	s.clean("n")
}

// TestRejoinedQueueIsNotPassed: a client takes its place again while the lock is
// held, after the server has forgotten the queue. The release sees it.
func TestRejoinedQueueIsNotPassed(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	a := s.engine(nil)
	b, tap := s.tapped(nil)
	h := s.hold(a, request("n"))
	w := s.queue(b, request("n"))
	s.server.Do(t, "DEL", "fencelock:2:queue:{lock:n}")
	tap.disconnect()()
	s.until("it is back", func() bool { return s.queued("n") == 1 })
	begun := time.Now()
	h.free()
	w.granted()
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it was told after %v", took)
	}
}
