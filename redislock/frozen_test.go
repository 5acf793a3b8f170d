package redislock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redislock"
)

// TestThousandsOfTheDead: more dead requests stand in front than one script looks at.
func TestThousandsOfTheDead(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redis: a waiter dies", verdict.Safe)
	s := newScene(t)
	a, b := s.engine(nil), s.engine(nil)
	h := s.hold(a, request("n"))
	w := s.queue(b, request("n"))
	args := []string{"ZADD", "fencelock:2:queue:{lock:n}"}
	for i := range 5000 {
		args = append(args, number(int64(i+1)), fmt.Sprintf("00000000-0000-7000-8000-%012d dead x 0 1 60000 0 1 host ", i))
	}
	s.server.Do(t, args...)
	begun := time.Now()
	h.free()
	w.granted().free()
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("it took %v to pass 5,000 dead", took)
	}
}

// freeze makes an engine send and receive nothing more until the end of the test, when its
// requests are given up. What it has sent is answered by then.
func (t *tap) freeze(tb testing.TB) {
	tb.Cleanup(func() { // or each request would try for long to be taken back
		t.calls(nil)
		t.texts(nil)
	})
	t.texts(func(string, func(string)) {})
	t.calls(func(redisconn.Call, func() redisconn.Reply) redisconn.Reply { return redisconn.Reply{Err: errLost} })
	for t.busy() {
		time.Sleep(time.Millisecond)
	}
}

// TestThreeFrozenProcesses: each that is handed the lock costs one grant, and whoever
// waits looks when that is over.
func TestThreeFrozenProcesses(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.brisk = true
	h := s.hold(s.engine(nil), request("n"))
	var taps []*tap
	for range 3 {
		e, tap := s.tapped(nil)
		s.queue(e, request("n"))
		s.queue(e, request("n"))
		taps = append(taps, tap)
	}
	w := s.queue(s.engine(nil), request("n"))
	for _, tap := range taps {
		tap.disconnect()()
	}
	for _, tap := range taps {
		tap.freeze(t)
	}
	begun := time.Now()
	h.free()
	w.granted().free()
	took := time.Since(begun)
	if took > 20*time.Second {
		t.Errorf("three frozen processes cost %v, want three grants of 2 s", took)
	}
	t.Logf("three frozen processes cost %v", took)
}

// TestManyLeasesEndTogether: no script ends so many shared leases that others have
// to wait for it.
func TestManyLeasesEndTogether(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.engine(nil)
	const holders = 3000
	seats := []string{"ZADD", "lock:n", number(holders), "fencelock:2 shared 0"}
	for i := range holders {
		token := number(1_700_000_000_000_000 + int64(i))
		ends := "1000000000000"
		if i == holders-1 {
			ends = number(time.Now().Add(long).UnixMilli())
		}
		seats = append(seats, ends, token, token, fmt.Sprintf("00000000-0000-7000-8000-%012d client s 0 1 60000 0 1 host ", i))
	}
	s.server.Do(t, seats...)
	s.server.Do(t, "PEXPIRE", "lock:n", "60000")
	scripts := 0
	for held := int64(holders); held > 1; scripts++ {
		if h, err := s.ask(e, try(request("n"))).ended(); err == nil {
			h.free()
		}
		left := number64(t, s.server.Do(t, "ZCARD", "lock:n")) / 2
		if held-left > 512 {
			t.Fatalf("one script ended %d leases", held-left)
		}
		held = left
	}
	if scripts < 3 {
		t.Errorf("%d scripts ended %d leases", scripts, holders)
	}
	if st := s.status("n"); len(st.Holders) != 1 {
		t.Errorf("%d hold, want the one whose lease is not over", len(st.Holders))
	}
}

// TestLateResize: the first try of a change of the limit arrives after a later change.
func TestLateResize(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, tap := s.tapped(nil)
	var first redisconn.Call
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		if c.Script == redislock.ResizeScript && first.Script == nil && len(c.Args) == redislock.ResizeArgs {
			first = c
			return redisconn.Reply{Err: errLost}
		}
		return do()
	})
	s.resize(e, "n", 2)
	s.resize(s.observer(), "n", 3)
	if r := tap.Conn.Eval(t.Context(), []redisconn.Call{first})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	for range 3 {
		s.hold(e, shared(request("n"), 3))
	}
	if st := s.status("n"); st.Limit != 3 || len(st.Holders) != 3 {
		t.Errorf("after a late try of an earlier change: %+v", st)
	}
}

// TestScriptForgottenAtTheDeadline: the server does not know a script, and the time of
// the try is over before it could be told. Another try follows, and a withdrawal does.
func TestScriptForgottenAtTheDeadline(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, tap := s.tapped(nil)
	forgets := func(script *redisconn.Script) {
		tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
			if c.Script == script {
				tap.calls(nil)
				return redisconn.Reply{Err: redisconn.ServerError{Text: "NOSCRIPT No matching script. Please use EVAL."}}
			}
			return do()
		})
	}
	forgets(redislock.AcquireScript)
	h := s.hold(e, request("n"))
	w := s.queue(e, request("n"))
	forgets(redislock.LeaveScript)
	w.cancel()
	_, _ = w.ended()
	s.until("withdrawn", func() bool { return s.queued("n") == 0 })
	h.free()
}
