package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/redislock"
)

// jam fills every flight of an engine with calls that do not return before open,
// so that what is asked of it meanwhile goes together. Calls of the gathered
// script go to f.
func (s scene) jam(e *redislock.Engine, t *tap, f func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply) (open func()) {
	s.Helper()
	e.Gather()
	gate := make(chan struct{})
	var stuck atomic.Int32
	t.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		switch {
		case strings.HasPrefix(c.Keys[0], "lock:jam"):
			stuck.Add(1)
			<-gate
		case c.Script == redislock.GatherScript:
			return f(c, do)
		}
		return do()
	})
	var jams []*call
	for i := range redislock.MaxFlights {
		jams = append(jams, s.ask(e, request(fmt.Sprint("jam-", e.ID(), i))))
	}
	s.until("jammed", func() bool { return stuck.Load() == redislock.MaxFlights })
	open = sync.OnceFunc(func() { close(gate) })
	s.Cleanup(func() {
		open()
		for _, j := range jams {
			<-j.done
		}
	})
	return open
}

func pass(_ redisconn.Call, do func() redisconn.Reply) redisconn.Reply { return do() }

// waits returns when n operations wait to go together.
func (s scene) waits(e *redislock.Engine, n int) {
	s.Helper()
	s.until(fmt.Sprint(n, " errands wait"), func() bool { return e.Waiting() == n })
}

// TestGathered: acquires and releases that come while others are under way share
// a script. Each gets its own answer: granted, held, waiting, gone.
func TestGathered(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, tap := s.tapped(nil)
	other := s.engine(nil)
	mine, broken, wanted := s.hold(e, request("mine")), s.hold(e, request("broken")), s.hold(e, request("wanted"))
	theirs := s.hold(other, request("theirs"))
	next := s.queue(other, request("wanted"))
	s.hold(other, request("again")).free()
	closed := request("closed")
	closed.MinHold = time.Minute
	s.hold(other, closed).free()
	s.server.Do(t, "SET", "lock:foreign", "somebody", "PX", "60000")
	s.server.Do(t, "LPUSH", "lock:list", "x")
	s.server.Do(t, "SET", "fencelock:2:fence:{lock:future}", "9000000000000000")
	if _, err := other.Break(context.Background(), "broken", "test"); err != nil {
		t.Fatal(err)
	}

	var scripts atomic.Int32
	open := s.jam(e, tap, func(_ redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		scripts.Add(1)
		return do()
	})
	var calls []*call
	for _, name := range []string{"new", "again", "future"} {
		calls = append(calls, s.ask(e, request(name)), s.ask(e, try(request(name))))
	}
	held := map[string]*call{}
	for _, name := range []string{"theirs", "closed", "foreign", "list"} {
		held[name] = s.ask(e, try(request(name)))
	}
	freed := make(chan error, 3)
	for _, h := range []hold{mine, wanted, broken} {
		go func() { freed <- h.release() }()
	}
	s.waits(e, len(calls)+len(held)+3)
	open()
	for i := 0; i < len(calls); i += 2 {
		s.either(calls[i], calls[i+1])
	}
	for name, c := range held {
		if _, err := c.ended(); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("%q: got %v, want held", name, err)
		}
	}
	gone := 0
	for range 3 {
		if err := <-freed; errors.Is(err, driver.ErrNotHeld) {
			gone++
		} else if err != nil {
			t.Error(err)
		}
	}
	if gone != 1 {
		t.Errorf("%d releases were told that their lock is gone, want that of the broken one", gone)
	}
	next.granted().free()
	theirs.free()
	s.clean("mine")
	if n := scripts.Load(); n != 1 {
		t.Errorf("%d gathered scripts, want 1", n)
	}
}

// either fails the test unless exactly one of a waiting acquire and a try of the
// same name is granted at first; then the waiting one is, too.
func (s scene) either(wait, once *call) {
	s.Helper()
	h, err := once.ended()
	switch {
	case err == nil:
		if wait.answered() && wait.err == nil {
			s.Errorf("%q was granted twice", wait.hold.req.Name)
		}
		h.free()
	case !errors.Is(err, driver.ErrHeld):
		s.Error(err)
	}
	wait.granted().free()
}

// TestGatheredIsRefused: one name that the server's rules forbid does not cost the
// others theirs.
func TestGatheredIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	o := s.user("~*:jam*", "~*:{lock:jam*", "~*:ok*", "~*:{lock:ok*")
	tap := &tap{Conn: redisconn.Rueidis(rueidisClient(t, o))}
	e := redislock.NewConn(tap, patient(nil))
	t.Cleanup(func() { _ = e.Close() })
	mine := s.hold(e, request("ok"))
	open := s.jam(e, tap, pass)
	good, bad := s.ask(e, request("ok1")), s.ask(e, request("forbidden"))
	freed := make(chan error, 1)
	go func() { freed <- mine.release() }()
	s.waits(e, 3)
	open()
	good.granted().free()
	if _, err := bad.ended(); !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("got %v, want the server's refusal", err)
	}
	if err := <-freed; err != nil {
		t.Errorf("release: %v", err)
	}
}

// TestGatheredAnswerIsLost: the script ran, and its answer was lost. Acquires find
// what they took, and releases are made again and find that they worked.
func TestGatheredAnswerIsLost(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, tap := s.tapped(nil)
	mine := s.hold(e, request("mine"))
	open := s.jam(e, tap, func(c redisconn.Call, _ func() redisconn.Reply) redisconn.Reply {
		s.until("it ran", func() bool { return tap.Conn.Eval(t.Context(), []redisconn.Call{c})[0].Err == nil })
		return redisconn.Reply{Err: errLost}
	})
	a := s.ask(e, request("a"))
	freed := make(chan error, 1)
	go func() { freed <- mine.release() }()
	s.waits(e, 2)
	open()
	if err := <-freed; err != nil {
		t.Errorf("a release whose answer was lost: %v", err)
	}
	h := a.granted()
	if token := s.fencingToken("a"); token != number(h.Token) {
		t.Errorf("token %d, the server says %s", h.Token, token)
	}
	h.free()
	s.gone(mine.release())
}

// TestGatheredGivesUp: a caller that leaves before its operation was sent leaves no
// trace, and one that leaves afterwards gives back what it got.
func TestGatheredGivesUp(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, tap := s.tapped(nil)
	under, resume := make(chan struct{}), make(chan struct{})
	sent := sync.OnceFunc(func() { close(under) })
	open := s.jam(e, tap, func(_ redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		r := do()
		sent()
		<-resume
		return r
	})
	early, late := s.ask(e, request("early")), s.ask(e, request("late"))
	s.waits(e, 2)
	early.cancel()
	if _, err := early.ended(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	s.waits(e, 1)
	open()
	<-under
	late.cancel()
	if _, err := late.ended(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(resume)
	s.clean("late")
	if got := s.fencingToken("early"); got != "" {
		t.Errorf("an errand that was given up was sent: token %s", got)
	}
}

// TestGatheredBehindASilentServer: operations do not wait for calls without an answer
// for longer than their own limit.
func TestGatheredBehindASilentServer(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, tap := s.hasty(time.Second)
	s.jam(e, tap, pass)
	begun := time.Now()
	_, err := s.ask(e, try(request("n"))).ended()
	s.says(err, driver.ErrUnavailable, s.server.Addr())
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if e.Waiting() != 0 {
		t.Errorf("%d errands still wait", e.Waiting())
	}
}

// TestDistantServer: operations wait for calls that take long for a moment only, and
// not at all once there are enough of them to fill a script.
func TestDistantServer(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for what, n := range map[string]int{"a moment": 5, "a full script": 64} {
		e, tap := s.tapped(nil)
		arrived := make(chan struct{}, 99)
		open := s.jam(e, tap, func(_ redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
			arrived <- struct{}{}
			return do()
		})
		if n < 64 {
			e.GatherAsUsual()
		}
		var calls []*call
		for i := range n {
			calls = append(calls, s.ask(e, request(fmt.Sprint(n, "-", i))))
		}
		<-arrived
		var holds []hold
		for _, c := range calls {
			holds = append(holds, c.granted()) // although no call has come back
		}
		t.Log(what)
		open()
		for _, h := range holds {
			h.free()
		}
	}
}

// TestManyAtOnce: what goes together is as exclusive as what goes alone, and
// takes fewer calls.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, tap := s.tapped(nil)
	var scripts atomic.Int64
	tap.calls(func(_ redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		scripts.Add(1)
		return do()
	})
	const goroutines, turns, names = 256, 40, 200
	var inside [names]atomic.Int32
	var last [names]atomic.Int64
	var held, lapsed, together, disorder atomic.Int64
	var all sync.WaitGroup
	for i := range goroutines {
		all.Go(func() {
			n := i % names // most have a name of their own
			for range turns {
				g, err := e.Acquire(context.Background(), request(fmt.Sprint("n", n)))
				if err != nil {
					t.Error(err)
					return
				}
				if inside[n].Add(1) != 1 {
					together.Add(1)
				}
				if before := last[n].Swap(g.Token); before >= g.Token {
					disorder.Add(1)
				}
				held.Add(1)
				inside[n].Add(-1)
				if time.Since(g.Sent) > g.TTL { // that of a waiter is short
					lapsed.Add(1)
				}
				if err := (hold{s, e, request(fmt.Sprint("n", n)), g}).freed(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d holds in %d calls, %d of them longer than their leases", held.Load(), scripts.Load(), lapsed.Load())
	if lapsed.Load() == 0 && together.Load()+disorder.Load() > 0 {
		t.Errorf("%d times two held one name, and %d tokens did not grow", together.Load(), disorder.Load())
	}
	if scripts.Load() >= 2*held.Load() {
		t.Errorf("%d calls for %d holds: nothing went together", scripts.Load(), held.Load())
	}
}
