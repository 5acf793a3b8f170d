package redlock_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redlock"
)

// behind puts a proxy before every server.
func behind(t *testing.T, w world) (proxies []*faults.Proxy, addrs []string) {
	t.Helper()
	for _, r := range w {
		p, err := faults.NewProxy(r.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		proxies, addrs = append(proxies, p), append(addrs, p.Addr())
	}
	return proxies, addrs
}

// delay makes proxies hold requests for the lock x until the end of the test, in one of their ways.
func delay(t *testing.T, proxies []*faults.Proxy, hold func(p *faults.Proxy, text string) *faults.Held) (held []*faults.Held) {
	for _, p := range proxies {
		h := hold(p, "lock:x")
		t.Cleanup(h.End)
		held = append(held, h)
	}
	return held
}

// kinds are the kinds of requests.
var kinds = map[string]driver.Request{
	"exclusive":    {},
	"shared":       {Mode: driver.Shared},
	"minimum hold": {MinHold: 20 * time.Second},
	"waiting":      {Wait: true},
}

// TestLateRequestsDoNothing: two of three nodes get the requests of a client that has
// long given up, closed its engine and gone. They close the name to nobody.
func TestLateRequestsDoNothing(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redlock: a request arrives after its client gave up", verdict.Safe)
	for what, req := range kinds {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := startNodes(t, 3)
			proxies, addrs := behind(t, w)
			var mu sync.Mutex // guards by
			by := ""          // when the last request is too late, by the machine's clock
			cfg := redlock.Config{Nodes: w.addrs(), RetryTimeout: time.Millisecond, NodeLimit: 500 * time.Millisecond}
			late := openThrough(t, addrs, cfg, func(_ int, node redisconn.Conn) redisconn.Conn {
				return watched{node, func(c redisconn.Call, do func() []redisconn.Reply) []redisconn.Reply {
					if redlock.Kind(c.Script) == "ask" {
						mu.Lock()
						by = max(by, c.Args[3])
						mu.Unlock()
					}
					return do()
				}}
			})
			eventually(t, "a first lock", func() bool {
				g, err := try(late, "warm", long)
				return err == nil && late.Release(context.Background(), leaseOf("warm", g, long)) == nil
			})
			held := delay(t, proxies[:2], (*faults.Proxy).Hold)
			req.Name, req.TTL = "x", long
			eventually(t, "a request to both", func() bool { // one that was too slow lately is not asked at once
				if _, err := late.Acquire(t.Context(), req); !errors.Is(err, driver.ErrUnavailable) {
					t.Fatalf("with two of three nodes behind: got %v, want ErrUnavailable", err)
				}
				return !slices.ContainsFunc(held, func(h *faults.Held) bool { return !isClosed(h.Caught()) })
			})
			if err := late.Close(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "what is late is late", func() bool { return strconv.FormatInt(time.Now().UnixMicro(), 10) > by })
			for _, h := range held {
				h.Deliver()
				<-h.Answered()
			}
			other := open(t, w.addrs(), redlock.Config{})
			_, l := take(t, other, "x", long)
			release(t, other, l)
			for _, r := range w {
				if keys := r.Do(t, "KEYS", "*:{lock:x}*"); strings.Contains(keys, "queue") {
					t.Errorf("%s has %q: one that gave up waits there", r.Addr(), keys)
				}
			}
		})
	}
}

// TestTakenBackBars: a request that is taken back before it arrives does nothing,
// though its time is not over.
func TestTakenBackBars(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redlock: a request arrives after its client gave up", verdict.Safe)
	for what, req := range kinds {
		if req.Wait {
			continue
		}
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := startNodes(t, 3)
			proxies, addrs := behind(t, w)
			// One attempt: the next one would find the nodes back.
			e := open(t, addrs, redlock.Config{Nodes: w.addrs(), RetryTimeout: time.Nanosecond})
			warmUp(t, e)
			held := delay(t, proxies[:2], (*faults.Proxy).HoldNext)
			req.Name, req.TTL = "x", long
			failed := make(chan error, 1)
			go func() { // ends with the acquire
				_, err := e.Acquire(t.Context(), req)
				failed <- err
			}()
			for _, h := range held {
				<-h.Caught()
				h.ResetClients()
			}
			if err := <-failed; !errors.Is(err, driver.ErrUnavailable) {
				t.Fatalf("with two of three nodes reset: got %v, want ErrUnavailable", err)
			}
			for _, r := range w[:2] { // the client, which is back, has taken it back there
				eventually(t, "a bar", func() bool { return r.Do(t, "KEYS", "fence:{lock:x}/*") != "" })
			}
			for _, h := range held {
				h.Deliver()
				<-h.Answered()
			}
			take(t, open(t, w.addrs(), redlock.Config{}), "x", long)
		})
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
