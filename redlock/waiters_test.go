package redlock_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redlock"
)

// useEverything leaves a lock of every kind, held and released, and a waiter.
func useEverything(t *testing.T, e *redlock.Engine) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	for i, req := range []driver.Request{
		{}, {Mode: driver.Shared}, {MinHold: time.Minute},
	} {
		for _, kept := range []string{"kept", "released"} {
			req.Name, req.TTL = kept+strconv.Itoa(i), long
			g, err := e.Acquire(ctx, req)
			if err != nil {
				t.Fatal(err)
			}
			l := driver.Lease{Name: req.Name, Owner: g.Owner, Token: g.Token, Mode: req.Mode, TTL: req.TTL}
			if err := e.Renew(ctx, []driver.Lease{l})[0]; err != nil {
				t.Fatal(err)
			}
			if kept == "released" {
				release(t, e, l)
			}
		}
	}
	waits := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		var once sync.Once
		_, _ = e.Acquire(ctx, driver.Request{Name: "kept0", TTL: time.Second, Wait: true, OnWait: func(driver.WaitInfo) { once.Do(func() { close(waits) }) }})
	}()
	<-waits
	if _, err := e.Break(ctx, "kept2", "a test"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); <-done })
}

// TestDeafWaiter: a waiter whose subscriptions are refused gets in all the same.
func TestDeafWaiter(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	for _, r := range w {
		r.Do(t, "ACL", "SETUSER", "default", "resetchannels")
	}
	e, other := open(t, w.addrs(), redlock.Config{}), open(t, w.addrs(), redlock.Config{})
	_, l := take(t, e, "x", long)
	waits := make(chan struct{}, 1)
	got := make(chan error)
	go func() {
		_, err := other.Acquire(context.Background(), driver.Request{Name: "x", TTL: long, Wait: true, OnWait: func(driver.WaitInfo) { waits <- struct{}{} }})
		got <- err
	}()
	<-waits
	release(t, e, l)
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(3 * time.Minute):
		t.Errorf("not within three minutes, with a TTL of %v", long)
	}
}

// TestTextbookClients: plain SET NX PX on each node excludes us, and we them.
func TestTextbookClients(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redlock: another client uses the textbook algorithm on the same keys", verdict.Safe)
	w := startNodes(t, 3)
	e := open(t, w.addrs(), redlock.Config{})
	_, l := take(t, e, "x", long)
	for _, r := range w {
		eventually(t, "our key on every node", func() bool { return r.Do(t, "EXISTS", "lock:x") == "1" })
		if got := r.Do(t, "SET", "lock:x", "theirs", "NX", "PX", "20000"); got != "" {
			t.Errorf("a plain client got our lock: %s", got)
		}
	}
	release(t, e, l)
	for _, r := range w {
		eventually(t, "their key on every node", func() bool { return r.Do(t, "SET", "lock:x", "theirs", "NX", "PX", "20000") == "OK" })
	}
	_, err := try(e, "x", time.Second)
	if held, ok := errors.AsType[*driver.HeldError](err); !ok || held.Owner != "theirs" {
		t.Errorf("under a plain client: got %v, want a HeldError with its value", err)
	}
	list, err := e.List(context.Background(), driver.Query{Prefix: "x", Exact: true})
	if err != nil || len(list) != 1 || len(list[0].Holders) != 1 || !list[0].Holders[0].Foreign {
		t.Errorf("a plain client is listed as %+v, %v", list, err)
	}
	for _, r := range w {
		r.Do(t, "DEL", "lock:x")
	}
	_, l = take(t, e, "x", time.Second)
	release(t, e, l)
}

// TestBrokenKey: a key of another type is a foreign holder, and can be broken.
func TestBrokenKey(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	e := open(t, w.addrs(), redlock.Config{})
	for _, r := range w {
		r.Do(t, "LPUSH", "lock:x", "a list")
	}
	if _, err := try(e, "x", time.Second); !errors.Is(err, driver.ErrHeld) || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("got %v, want ErrHeld that says WRONGTYPE", err)
	}
	if _, err := e.Break(context.Background(), "x", "a list is no lock"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a lock after the break", func() bool { _, err := try(e, "x", time.Second); return err == nil })
}

// A waiter acquires the lock while one node has yet to receive the release. It takes its
// request back there, or that node would keep the name for who has it already.
func TestNodesKeepVoting(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	watch := func(call func(redisconn.Call)) *redlock.Engine {
		return openThrough(t, w.addrs(), redlock.Config{}, func(i int, node redisconn.Conn) redisconn.Conn {
			if i != 1 {
				return node
			}
			return watched{node, func(c redisconn.Call, do func() []redisconn.Reply) []redisconn.Reply {
				call(c)
				return do()
			}}
		})
	}
	in, left := make(chan error, 1), make(chan struct{})
	leave := sync.OnceFunc(func() { close(left) })
	holder := watch(func(c redisconn.Call) {
		if redlock.Kind(c.Script) == "release" {
			<-left
		}
	})
	waiter := watch(func(c redisconn.Call) {
		if redlock.Kind(c.Script) == "leave" {
			leave()
		}
	})
	t.Cleanup(leave) // before the engines are closed, which wait for the release
	_, l := take(t, holder, "x", long)
	go func() { // ends with the test at the latest
		_, err := waiter.Acquire(t.Context(), driver.Request{Name: "x", TTL: long, Wait: true})
		in <- err
	}()
	queued := func() string { return w[1].Do(t, "ZCARD", "queue:{lock:x}") }
	eventually(t, "a waiter", func() bool { return queued() == "1" })
	release(t, holder, l)
	if err := <-in; err != nil {
		t.Fatal(err)
	}
	select {
	case <-left:
	case <-time.After(3 * time.Minute):
		t.Fatal("a waiter that got in did not leave the queue of the node that has yet to receive it")
	}
	eventually(t, "a queue without who got in", func() bool { return queued() == "0" })
}

// TestWaiterThatGivesUpLeavesLateQueues: requests that are still on their way when
// their waiter gives up put it into no queue for good.
func TestWaiterThatGivesUpLeavesLateQueues(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	holder := open(t, w.addrs(), redlock.Config{})
	take(t, holder, "a", long)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var late sync.WaitGroup // the requests on their way
	tardy := func(c redisconn.Call, do func() []redisconn.Reply) []redisconn.Reply {
		if redlock.Kind(c.Script) == "ask" && len(c.Args) > 6 && c.Args[6] != "-1" {
			late.Add(1)
			defer late.Done()
			cancel()
			time.Sleep(50 * time.Millisecond)
		}
		return do()
	}
	e := openThrough(t, w.addrs(), redlock.Config{}, func(_ int, node redisconn.Conn) redisconn.Conn { return watched{node, tardy} })
	if _, err := e.Acquire(ctx, driver.Request{Name: "a", TTL: time.Second, Wait: true}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	late.Wait()
	list, err := holder.List(t.Context(), driver.Query{Prefix: "a", Exact: true})
	if err != nil || len(list) != 1 || len(list[0].Waiters) != 0 {
		t.Errorf("one waiter gave up, and the nodes list %+v, %v", list, err)
	}
}
