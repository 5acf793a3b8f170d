package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/redlock"
)

// rises takes and releases the name, and fails the test unless the token is
// greater than last.
func rises(t *testing.T, e *redlock.Engine, last int64, after string) int64 {
	t.Helper()
	g, l := retryAcquire(t, e, "x", long)
	if g.Token <= last {
		t.Errorf("after %s: token %d, the one before was %d", after, g.Token, last)
	}
	release(t, e, l)
	return g.Token
}

func TestTokensRise(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 5)
	now := open(t, w.addrs(), redlock.Config{})
	late, early := open(t, w.addrs(), redlock.Config{}), open(t, w.addrs(), redlock.Config{})
	late.SetClock(func() time.Time { return time.Now().Add(-time.Hour) })
	early.SetClock(func() time.Time { return time.Now().Add(time.Hour) })
	last := int64(0)
	for range 5 {
		last = rises(t, now, last, "a client with the right time")
		last = rises(t, early, last, "a client an hour ahead")
		last = rises(t, late, last, "a client an hour behind")
	}
	if ahead := time.Until(time.UnixMicro(last)); ahead > time.Minute {
		t.Errorf("a client an hour ahead carried tokens %v into the future", ahead)
	}
	for _, r := range w[:2] {
		r.Do(t, "FLUSHALL")
	}
	last = rises(t, late, last, "FLUSHALL of a minority")
	w.declareNew(t)
	for i, r := range w {
		r.Restart(t)
		last = rises(t, late, last, "a restart of node "+r.Addr())
		if i < len(w)-1 {
			w.declareNew(t)
		}
	}
}

// TestEveryKeyExpires looks for keys without a TTL on any node, with locks of all
// kinds held, waited for and released.
func TestEveryKeyExpires(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	e := open(t, w.addrs(), redlock.Config{})
	useEverything(t, e)
	for _, r := range w {
		for _, key := range strings.Fields(r.Do(t, "KEYS", "*")) {
			if ttl := r.Do(t, "PTTL", key); ttl == "-1" {
				t.Errorf("%s has PTTL %s on %s", key, ttl, r.Addr())
			}
		}
	}
}

// TestUnfinishedIsNoHolder: the context of a request ends while the nodes that granted it store its
// token. Nobody else holds the name, so the error is not ErrHeld.
func TestUnfinishedIsNoHolder(t *testing.T) {
	t.Parallel()
	for _, wait := range []bool{true, false} {
		t.Run(fmt.Sprint("Wait ", wait), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			store := make(chan struct{})
			defer close(store)
			e := openThrough(t, startNodes(t, 3).addrs(), redlock.Config{}, func(_ int, node redisconn.Conn) redisconn.Conn {
				return watched{node, func(c redisconn.Call, do func() []redisconn.Reply) []redisconn.Reply {
					if redlock.Kind(c.Script) == "raise" {
						cancel()
						<-store
					}
					return do()
				}}
			})
			_, err := e.Acquire(ctx, driver.Request{Name: "x", TTL: long, MinHold: time.Second, Wait: wait}) // a minimum hold is stored in a second round
			if ctx.Err() == nil {
				t.Fatal("no node was asked to store a token: this test does not test")
			}
			if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrHeld) {
				t.Errorf("got %v, want ErrUnavailable", err)
			}
		})
	}
}
