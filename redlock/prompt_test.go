package redlock_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redlock"
)

// TestCancelWhileOneNodeIsAsked: a waiter that was told that the name is free asks one
// node first. When its context ends it returns, though that node has not answered.
func TestCancelWhileOneNodeIsAsked(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	take(t, open(t, w.addrs(), redlock.Config{}), "x", long)
	asked, answer := make(chan struct{}), make(chan struct{})
	tellAsked := sync.OnceFunc(func() { close(asked) })
	e := openThrough(t, w.addrs(), redlock.Config{}, func(i int, node redisconn.Conn) redisconn.Conn {
		return watched{node, func(c redisconn.Call, do func() []redisconn.Reply) []redisconn.Reply {
			if redlock.Kind(c.Script) == "ask" && len(c.Args) > 8 && c.Args[8] == "first" {
				tellAsked()
				<-answer
			}
			return do()
		}}
	})
	t.Cleanup(func() { close(answer) }) // before the engine is closed, which waits for the answer
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waits, done := make(chan struct{}), make(chan error, 1)
	go func() { // ends with the test at the latest
		_, err := e.Acquire(ctx, driver.Request{Name: "x", TTL: long, Wait: true, OnWait: func(driver.WaitInfo) { close(waits) }})
		done <- err
	}()
	<-waits
	eventually(t, "a question to the node that goes first", func() bool {
		for _, r := range w {
			r.Do(t, "PUBLISH", "fencelock:redlock", "released * lock:x")
		}
		return isClosed(asked)
	})
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the acquire goes on after its context has ended")
	}
}

// TestPanicLeavesTheQueues: a waiter whose callback panics waits on no node any more.
func TestPanicLeavesTheQueues(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	take(t, open(t, w.addrs(), redlock.Config{}), "x", long)
	e := open(t, w.addrs(), redlock.Config{})
	func() {
		defer func() { _ = recover() }()
		_, err := e.Acquire(t.Context(), driver.Request{Name: "x", TTL: long, Wait: true, OnWait: func(driver.WaitInfo) { panic("a callback that panics") }})
		t.Errorf("no panic: %v", err)
	}()
	queued := 0
	for _, r := range w {
		if r.Do(t, "EXISTS", "queue:{lock:x}") == "1" {
			queued++
		}
	}
	if queued > 1 { // a majority has been told
		t.Errorf("the waiter is in the queues of %d nodes after its panic", queued)
	}
}

// TestClockThatWasSeenLongAgo: requests of a client that was idle for days say no longer
// than others until when they are of use, and neither do repairs by one that has only
// renewed for days.
func TestClockThatWasSeenLongAgo(t *testing.T) {
	t.Parallel()
	const idle, doubt = 100 * time.Hour, 5 * time.Second
	w := startNodes(t, 3)
	var latest atomic.Int64 // until when a request is of use, by the machine's clock
	cfg := redlock.Config{NodeLimit: 20 * time.Second}
	e := openThrough(t, w.addrs(), cfg, func(_ int, node redisconn.Conn) redisconn.Conn {
		return watched{node, func(c redisconn.Call, do func() []redisconn.Reply) []redisconn.Reply {
			if by := map[string]int{"ask": 3, "repair": 4}[redlock.Kind(c.Script)]; by > 0 {
				at, _ := strconv.ParseInt(c.Args[by], 10, 64)
				latest.Store(max(latest.Load(), at))
			}
			return do()
		}}
	})
	check := func(what string) {
		t.Helper()
		if over := time.Until(time.UnixMicro(latest.Load())) - cfg.NodeLimit; over > doubt {
			t.Errorf("%s is of use for %v longer than its limit", what, over)
		}
		latest.Store(0)
	}
	warmUp(t, e)
	e.Idle(idle)
	_, l := take(t, e, "x", long)
	check("a request")
	e.Idle(idle)
	eventually(t, "the lock on every node", func() bool {
		return !slices.ContainsFunc(w, func(r *redistest.Redis) bool { return r.Do(t, "EXISTS", "lock:x") != "1" })
	})
	w[2].Do(t, "DEL", "lock:x")
	if err := e.Renew(t.Context(), []driver.Lease{l})[0]; err != nil {
		t.Fatal(err)
	}
	eventually(t, "a repair", func() bool { return w[2].Do(t, "EXISTS", "lock:x") == "1" })
	check("a repair")
}

// pinged is a node whose PINGs are counted: an engine sends them while a node is left out.
type pinged struct {
	redisconn.Conn
	pings atomic.Int32
}

func (p *pinged) Each(ctx context.Context, args ...string) ([]redisconn.Answer, error) {
	if slices.Equal(args, []string{"PING"}) {
		p.pings.Add(1)
	}
	return p.Conn.Each(ctx, args...)
}

// TestNoTimeForARepair: when the lease is almost over, a node is not asked to repair the
// lock within no time, and left out because it cannot.
func TestNoTimeForARepair(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	var last pinged
	e := openThrough(t, w.addrs(), redlock.Config{}, func(i int, node redisconn.Conn) redisconn.Conn {
		if i < 2 {
			return node
		}
		last.Conn = node
		return &last
	})
	warmUp(t, e)
	_, l := take(t, e, "x", long)
	eventually(t, "the lock on every node", func() bool { return w[2].Do(t, "DEL", "lock:x") == "1" })
	for range 20 {
		e.Restore(2, l, time.Microsecond)
	}
	e.Restore(2, l, long)
	eventually(t, "a repair for which there is time", func() bool { return w[2].Do(t, "EXISTS", "lock:x") == "1" })
	if err := e.Close(); err != nil { // all questions have been put
		t.Fatal(err)
	}
	if n := last.pings.Load(); n > 0 {
		t.Errorf("a healthy node was left out: it got %d PINGs", n)
	}
}
