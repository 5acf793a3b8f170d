package redlock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/redlock"
)

// TestClose closes an engine under requests of every kind: they end, with an error
// or a grant, and nothing of the engine runs on.
func TestClose(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	holder, e := open(t, w.addrs(), redlock.Config{}), open(t, w.addrs(), redlock.Config{})
	take(t, holder, "held", long)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for {
				req := driver.Request{Name: "free", TTL: time.Second}
				if i%2 == 0 {
					req.Name, req.Wait = "held", true
				}
				g, err := e.Acquire(context.Background(), req)
				if errors.Is(err, driver.ErrUnavailable) {
					return
				}
				if err == nil {
					_ = e.Release(context.Background(), driver.Lease{Name: req.Name, Owner: g.Owner, Token: g.Token, TTL: req.TTL})
				}
			}
		})
	}
	time.Sleep(100 * time.Millisecond)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if _, err := try(e, "late", time.Second); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("after Close: got %v, want ErrUnavailable", err)
	}
	if err := e.Renew(context.Background(), make([]driver.Lease, 2)); len(err) != 2 || err[1] == nil {
		t.Errorf("renewing after Close: got %v", err)
	}
	eventually(t, "the name is free for others", func() bool { _, err := try(holder, "free", time.Second); return err == nil })
}

// TestRefusedReleaseIsTakenBack: a node that refuses a release for the moment, as one
// that has lost its scripts does after a deadline, is told again, and not left with the
// lock until its lease ends.
func TestRefusedReleaseIsTakenBack(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	var refused atomic.Bool
	e := openThrough(t, w.addrs(), redlock.Config{}, func(i int, node redisconn.Conn) redisconn.Conn {
		return watched{node, func(c redisconn.Call, do func() []redisconn.Reply) []redisconn.Reply {
			if i == 0 && redlock.Kind(c.Script) == "release" && refused.CompareAndSwap(false, true) {
				return []redisconn.Reply{{Err: redisconn.ServerError{Text: "NOSCRIPT No matching script. Please use EVAL."}}}
			}
			return do()
		}}
	})
	_, l := take(t, e, "x", long)
	eventually(t, "the lock on every node", func() bool { return w[0].Do(t, "EXISTS", "lock:x") == "1" })
	release(t, e, l)
	eventually(t, "a free node", func() bool { return w[0].Do(t, "EXISTS", "lock:x") == "0" })
	if !refused.Load() {
		t.Error("the node has refused nothing")
	}
}
