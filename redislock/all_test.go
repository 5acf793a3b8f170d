package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redislock"
)

// requests asks for several names at once.
func requests(names ...string) []driver.Request {
	var reqs []driver.Request
	for _, name := range names {
		reqs = append(reqs, try(request(name)))
	}
	return reqs
}

// takeAll takes several names in one step.
func (s scene) takeAll(e *redislock.Engine, names ...string) []hold {
	s.Helper()
	grants, err := e.AcquireAll(context.Background(), requests(names...))
	if err != nil {
		s.Fatal(err)
	}
	var holds []hold
	for i, g := range grants {
		holds = append(holds, hold{s, e, requests(names[i])[0], g})
	}
	return holds
}

// TestAcquireAllIsOneCall: several names cost one call; each is a lock like any
// other afterwards.
func TestAcquireAllIsOneCall(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, tap := s.tapped(nil)
	var calls atomic.Int32
	tap.calls(func(c redisconn.Call, do func() redisconn.Reply) redisconn.Reply {
		r := do()
		if c.Script != redislock.IndexScript && r.Err == nil { // it was held for long, or tried again
			calls.Add(1)
		}
		return r
	})
	first := s.takeAll(e, "a", "b", "c")
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls for 3 names", n)
	}
	next := s.queue(s.engine(nil), request("b"))
	for _, h := range first {
		if err := h.renew(); err != nil {
			t.Error(err)
		}
		h.free()
	}
	if h := next.granted(); h.Token <= first[1].Token {
		t.Errorf("token %d after %d", h.Token, first[1].Token)
	}
	for _, name := range []string{"a", "c"} {
		s.clean(name)
	}
}

// TestAcquireAllOrNothing: a name that is held, shared, waited for, closed or of
// another type leaves the others alone.
func TestAcquireAllOrNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, other := s.engine(nil), s.engine(nil)
	theirs := s.hold(other, request("held"))
	s.hold(other, shared(request("shared"), 0))
	closed := request("closed")
	closed.MinHold = time.Minute
	s.hold(other, closed).free()
	s.server.Do(t, "SET", "lock:foreign", "somebody", "PX", "60000")
	s.server.Do(t, "LPUSH", "lock:list", "x")
	for name, want := range map[string]error{
		"held": driver.ErrHeld, "foreign": driver.ErrHeld,
		"shared": driver.ErrUnsupported, "closed": driver.ErrUnsupported, "list": driver.ErrUnsupported,
	} {
		_, err := e.AcquireAll(context.Background(), requests("a", name, "z"))
		if !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", name, err, want)
		}
		if held, ok := errors.AsType[*driver.HeldError](err); ok && held.Name != name {
			t.Errorf("%q: the error is about %q", name, held.Name)
		}
		for _, free := range []string{"a", "z"} {
			s.hold(e, try(request(free))).free()
		}
	}
	next := s.queue(other, request("held"))
	theirs.free()
	next.granted().free()
}

// TestAcquireAllAnswerIsLost: what the lost try took is given back, and the next
// try gets it.
func TestAcquireAllAnswerIsLost(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e, tap := s.tapped(nil)
	tap.loseReply(redislock.AcquireAllScript, func(redisconn.Reply) {})
	_, err := e.AcquireAll(context.Background(), requests("a", "b"))
	if err != nil && !errors.Is(err, driver.ErrHeld) { // the first try may still be in the way
		t.Fatal(err)
	}
	s.until("both names are free or ours", func() bool {
		if err != nil {
			_, err = e.AcquireAll(context.Background(), requests("a", "b"))
		}
		return err == nil
	})
}

// TestAcquireAllHearsOfABreak: a set has asked for no turn, and is told all the same.
func TestAcquireAllHearsOfABreak(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.engine(nil)
	lost := make(chan error, 2)
	reqs := requests("a", "b")
	for i := range reqs {
		reqs[i].OnLost = func(err error) { lost <- err }
	}
	if _, err := e.AcquireAll(t.Context(), reqs); err != nil {
		t.Fatal(err)
	}
	s.until("it listens", func() bool {
		return s.server.Do(t, "PUBSUB", "NUMSUB", "fencelock:"+e.ID()) == "fencelock:"+e.ID()+"\n1"
	})
	if _, err := s.engine(nil).Break(t.Context(), "a", "test"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-lost:
		if !errors.Is(err, driver.ErrLost) {
			t.Errorf("lost: %v", err)
		}
	case <-time.After(patience):
		t.Error("a break of a name of a set was not told")
	}
}

// TestAcquireAllRefuses: what it cannot do in one step it says so, and leaves no
// trace.
func TestAcquireAllRefuses(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	e := s.engine(nil)
	var many []string
	for i := range 65 {
		many = append(many, fmt.Sprint("n", i))
	}
	readers := requests("a", "b")
	for i := range readers {
		readers[i] = shared(readers[i], 0)
	}
	for what, reqs := range map[string][]driver.Request{"65 names": requests(many...), "shared": readers} {
		if _, err := e.AcquireAll(context.Background(), reqs); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("%s: %v", what, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := e.AcquireAll(ctx, requests("a", "b")); !errors.Is(err, context.Canceled) {
		t.Errorf("an ended context: %v", err)
	}
	s.clean("a")
}

// TestAcquireAllOnACluster: names with one hash tag go together, others do not.
func TestAcquireAllOnACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartRedisCluster(t, 3)
	e := clusterEngine(t, c)
	if _, err := e.AcquireAll(context.Background(), requests("a", "b")); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("two slots: %v", err)
	}
	grants, err := e.AcquireAll(context.Background(), requests("{user:1}/a", "{user:1}/b"))
	if err != nil || len(grants) != 2 {
		t.Errorf("one slot: %v, %v", grants, err)
	}
}
