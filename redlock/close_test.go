package redlock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redlock"
	"github.com/redis/rueidis"
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

// TestLazy: the first dial fails, which is remembered for a moment and not for
// good; and a context that ends is not made to wait for a dial.
func TestLazy(t *testing.T) {
	t.Parallel()
	server := redistest.StartRedis(t)
	dials := 0
	stuck := make(chan struct{})
	lazy := redlock.NewLazy(func() (rueidis.Client, error) {
		switch dials++; dials {
		case 1:
			return nil, errors.New("nobody is there")
		case 2:
			<-stuck
		}
		return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true})
	})
	if _, err := lazy.Each(context.Background(), "PING"); err == nil || err.Error() != "nobody is there" {
		t.Fatalf("got %v, want the error of the dial", err)
	}
	time.Sleep(30 * time.Millisecond) // the pause after the first failure is 20 ms
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := lazy.Each(ctx, "PING"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("during a dial that hangs: got %v, want DeadlineExceeded", err)
	}
	close(stuck)
	if _, err := lazy.Each(context.Background(), "PING"); err != nil {
		t.Fatal(err)
	}
	lazy.Close()
	if _, err := lazy.Each(context.Background(), "PING"); err == nil {
		t.Error("a closed connection works")
	}
}

// TestRefusedReleaseIsTakenBack: a node that refuses a release for the moment, as one
// that has lost its scripts does after a deadline, is told again, and not left with the
// lock until its lease ends.
func TestRefusedReleaseIsTakenBack(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	var refused atomic.Bool
	e := openThrough(t, w.addrs(), redlock.Config{}, func(i int, node redislock.Conn) redislock.Conn {
		return watched{node, func(c redislock.Call, do func() []redislock.Reply) []redislock.Reply {
			if i == 0 && redlock.Kind(c.Script) == "release" && refused.CompareAndSwap(false, true) {
				return []redislock.Reply{{Err: redislock.ServerError{Text: "NOSCRIPT No matching script. Please use EVAL."}}}
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
