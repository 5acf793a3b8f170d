package redlock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/redlock"
)

// rises takes and releases the name, and fails the test unless the token is
// greater than last.
func rises(t *testing.T, e *redlock.Engine, last int64, after string) int64 {
	t.Helper()
	g, l := insist(t, e, "x", long)
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
