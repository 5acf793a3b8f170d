package redlock_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redlock"
)

// span is one hold, by the holder's own account.
type span struct {
	from, to time.Time
	token    int64
}

// TestNemesis stops one node, kills another and starts it again without its data,
// and lets the first go on, over and over, while clients take turns. With
// FENCELOCK_SLOW set it goes on for a minute, and for another without the
// quarantine, which shows what that is for: there the holders overlap.
func TestNemesis(t *testing.T) {
	t.Parallel()
	long := os.Getenv("FENCELOCK_SLOW") != ""
	d := 4 * time.Second
	if long {
		d = time.Minute
	}
	holds, overlaps, falls := torment(t, d, redlock.Config{MaxTTL: 450 * time.Millisecond, RetryTimeout: time.Second, NodeLimit: 100 * time.Millisecond})
	t.Logf("with quarantine: %d holds in %v, %d overlaps, %d tokens out of order", holds, d, overlaps, falls)
	if overlaps > 0 || falls > 0 {
		t.Error("the lock is not safe")
	}
	if !long {
		return
	}
	holds, overlaps, falls = torment(t, d, redlock.Config{NoQuarantine: true, RetryTimeout: time.Second, NodeLimit: 100 * time.Millisecond})
	t.Logf("without: %d holds in %v, %d overlaps, %d tokens out of order", holds, d, overlaps, falls)
	if overlaps == 0 || falls > 0 {
		t.Error("without quarantine holders should overlap, and tokens rise")
	}
}

// torment returns how many holds there were, how many began before the one
// before had ended, and how many had a smaller token.
func torment(t *testing.T, d time.Duration, cfg redlock.Config) (holds, overlaps, falls int) {
	w := startNodes(t, 3)
	first := open(t, w.addrs(), cfg)
	eventually(t, "new nodes", func() bool { return first.Init(t.Context()) == nil })
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var mu sync.Mutex // guards spans
	var spans []span
	var clients sync.WaitGroup
	for range 4 {
		e := open(t, w.addrs(), cfg)
		clients.Go(func() {
			for ctx.Err() == nil {
				if s, ok := holdOnce(ctx, e); ok {
					mu.Lock()
					spans = append(spans, s)
					mu.Unlock()
				}
			}
		})
	}
	for round := 0; ctx.Err() == nil; round++ {
		stopped, killed := w[round%3], w[(round+1+rand.IntN(2))%3]
		stopped.Freeze(t)
		time.Sleep(rand.N(100 * time.Millisecond))
		killed.Kill(t)
		killed.Restart(t)
		time.Sleep(rand.N(150 * time.Millisecond))
		stopped.Thaw(t)
		time.Sleep(rand.N(300 * time.Millisecond))
	}
	clients.Wait()
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	for i := 1; i < len(spans); i++ {
		if spans[i].from.Before(spans[i-1].to) {
			overlaps++
		}
		falls += max(0, cmp.Compare(spans[i-1].token, spans[i].token)+1)
	}
	return len(spans), overlaps, falls
}

// holdOnce takes the lock, holds it for a while without renewals, and releases it.
func holdOnce(ctx context.Context, e *redlock.Engine) (s span, ok bool) {
	const ttl = 400 * time.Millisecond
	g, err := e.Acquire(ctx, driver.Request{Name: "x", TTL: ttl})
	if err != nil {
		time.Sleep(rand.N(10 * time.Millisecond))
		return s, false
	}
	s = span{from: time.Now(), token: g.Token}
	deadline := g.Sent.Add(ttl - ttl/50 - 10*time.Millisecond)
	time.Sleep(rand.N(ttl))
	s.to = time.Now()
	if s.to.After(deadline) {
		s.to = deadline
	}
	_ = e.Release(context.Background(), driver.Lease{Name: "x", Owner: g.Owner, Token: g.Token, TTL: ttl})
	return s, !s.to.Before(s.from)
}
