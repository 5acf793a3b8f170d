package redlock_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redlock"
)

// TestEverythingTwice: a hook of the client, or a proxy, sends every script twice, and the
// client sees the second answer. Each finds what the first has done.
func TestEverythingTwice(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redlock: an answer is lost, or a request arrives twice", verdict.Safe)
	w := startNodes(t, 3)
	e := openThrough(t, w.addrs(), redlock.Config{}, func(_ int, node redisconn.Conn) redisconn.Conn {
		return watched{node, func(_ redisconn.Call, do func() []redisconn.Reply) []redisconn.Reply {
			do()
			return do()
		}}
	})
	for what, req := range kinds {
		req.Name, req.TTL = "x "+what, long
		g, err := e.Acquire(t.Context(), req)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		l := leaseOf(req.Name, g, long)
		l.Mode = req.Mode
		if err := e.Renew(t.Context(), []driver.Lease{l})[0]; err != nil {
			t.Errorf("%s: renewal: %v", what, err)
		}
		if err := e.Release(t.Context(), l); err != nil {
			t.Errorf("%s: release: %v", what, err)
		}
		if err := e.Release(t.Context(), l); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("%s: a release of what is released: got %v, want ErrNotHeld", what, err)
		}
	}
	_, l := take(t, e, "broken", long)
	token, err := e.Break(t.Context(), "broken", "a test")
	if err != nil || token <= l.Token {
		t.Errorf("break: token %d after %d, %v", token, l.Token, err)
	}
	if err := e.Release(t.Context(), l); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("a release of what was broken: got %v, want ErrNotHeld", err)
	}
}

// TestGrantReachesTheOthers: two of five nodes refuse a lock, since another client has yet
// to give back what it got there. Soon they have it, too, though nothing is renewed: one
// failure does not end the hold.
func TestGrantReachesTheOthers(t *testing.T) {
	t.Parallel()
	for mode, what := range map[driver.Mode]string{driver.Exclusive: "exclusive", driver.Shared: "shared"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := startNodes(t, 5)
			later := time.Now().Add(time.Hour).UnixMicro() // the token of the other client
			for _, r := range w[3:] {
				r.Do(t, "SET", "lock:x", fmt.Sprintf("fencelock other %d 0 1 host note", later), "PX", "600000")
				r.Do(t, "SET", "fence:{lock:x}", fmt.Sprintf("%d %d - 0", later, later), "PX", "600000")
			}
			e := openThrough(t, w.addrs(), redlock.Config{}, func(i int, node redisconn.Conn) redisconn.Conn {
				var met atomic.Bool
				return watched{node, func(c redisconn.Call, do func() []redisconn.Reply) []redisconn.Reply {
					replies := do()
					if i > 2 && redlock.Kind(c.Script) == "ask" && strings.HasSuffix(c.Keys[0], ":x") && !met.Swap(true) {
						w[i].Do(t, "DEL", "lock:x") // the other client has lost
					}
					return replies
				}}
			})
			warmUp(t, e)
			g, err := e.Acquire(t.Context(), driver.Request{Name: "x", TTL: long, Mode: mode})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range w {
				eventually(t, "the lock on every node", func() bool {
					return r.Do(t, "EXISTS", "lock:x") == "1" && !strings.Contains(r.Do(t, "GET", "lock:x"), " other ")
				})
			}
			w[0].Kill(t)
			l := leaseOf("x", g, long)
			l.Mode = mode
			if err := e.Renew(t.Context(), []driver.Lease{l})[0]; err != nil {
				t.Error(err)
			}
			release(t, e, l)
			for _, r := range w[1:] {
				eventually(t, "a release on every node", func() bool { return r.Do(t, "EXISTS", "lock:x") == "0" })
			}
		})
	}
}

// TestLongMinimumHold: a minimum hold that nodes may forget is refused.
func TestLongMinimumHold(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	for what, c := range map[string]struct {
		cfg  redlock.Config
		req  driver.Request
		says string // "" means that it is granted
	}{
		"as long as MaxTTL":      {req: driver.Request{MinHold: 10 * time.Second}},
		"longer than MaxTTL":     {req: driver.Request{MinHold: 10*time.Second + 1}, says: "longer than 10s"},
		"without the quarantine": {cfg: redlock.Config{NoQuarantine: true}, req: driver.Request{MinHold: time.Minute}},
		"nodes that evict":       {cfg: redlock.Config{AllowEviction: true}, req: driver.Request{MinHold: time.Second}, says: "evict"},
	} {
		c.cfg.MaxTTL = 10 * time.Second
		c.req.Name, c.req.TTL = what, 10*time.Second
		switch _, err := open(t, w.addrs(), c.cfg).Acquire(t.Context(), c.req); {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case c.says != "" && (!errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: got %v, want ErrInvalid that says %s", what, err, c.says)
		}
	}
}
