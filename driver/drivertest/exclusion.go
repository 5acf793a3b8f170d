package drivertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// interval is the time one holder was inside, as it saw it.
type interval struct {
	token    int64
	from, to time.Time
}

// guarded is what the lock of the exclusion case protects. Its count is atomic
// only so that a broken engine is a lost update and not a data race.
type guarded struct {
	count  atomic.Int64
	inside atomic.Int64
	late   atomic.Int64 // visits that were not made
	mu     sync.Mutex   // guards log
	log    []interval
}

// visit is one critical section. It reports whether it was alone.
func (g *guarded) visit(token int64) bool {
	from := time.Now()
	alone := g.inside.Add(1) == 1
	n := g.count.Load()
	linger()
	g.count.Store(n + 1)
	g.inside.Add(-1)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.log = append(g.log, interval{token, from, time.Now()})
	return alone
}

// linger stays inside for a moment, which lets an intruder in.
func linger() { time.Sleep(time.Millisecond) }

// exclusion: many goroutines of several clients change one guarded counter. No
// update is lost, no two visits overlap, and tokens rise from visit to visit.
func exclusion(t *run) {
	const clients, workers, rounds = 3, 4, 5
	var g guarded
	var crowd sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.ctx, 6*t.patience)
	defer cancel()
	for _, c := range t.clients(clients) {
		for range workers {
			crowd.Go(func() { // ends when its rounds are done or ctx ends
				for range rounds {
					t.visit(ctx, c, &g)
				}
			})
		}
	}
	crowd.Wait()
	const all = clients * workers * rounds
	if got, want := g.count.Load(), all-g.late.Load(); got != want || want < all/2 {
		t.Errorf("the guarded counter is %d after %d visits of %d", got, want, all)
	}
	g.sweep(t)
}

// visit acquires, visits and releases once.
func (t *run) visit(ctx context.Context, c Client, g *guarded) {
	req := t.request("exclusion")
	req.Wait = true
	h, err := t.ask(ctx, c, req)
	if err != nil {
		t.Errorf("waiting for the contended name: %v", err)
		return
	}
	if !t.confirmed(ctx, h) {
		g.late.Add(1)
		return
	}
	if !g.visit(h.Token) {
		t.Errorf("token %d was not alone inside", h.Token)
	}
	if err := c.Release(ctx, h.lease()); err != nil {
		t.Errorf("releasing the contended name: %v", err)
	}
}

// confirmed renews a grant that runs for less than was asked, as a Locker does, and
// reports whether it stands: a machine may be too slow for that. Any goroutine may call it.
func (t *run) confirmed(ctx context.Context, h *held) bool {
	if !t.traits.Leased || h.TTL >= h.req.TTL {
		return true
	}
	err := h.client.Renew(ctx, []driver.Lease{h.lease()})[0]
	if errors.Is(err, driver.ErrNotHeld) {
		t.Logf("a grant of %q for %v came too late: %v", h.req.Name, h.TTL, err)
		return false
	}
	if err != nil {
		t.Errorf("renewing %q, which was granted for %v: %v", h.req.Name, h.TTL, err)
	}
	return true
}

// sweep fails the case if two intervals overlap or a later one has a token that
// is not greater.
func (g *guarded) sweep(t *run) {
	slices.SortFunc(g.log, func(a, b interval) int {
		if c := a.from.Compare(b.from); c != 0 {
			return c
		}
		return a.to.Compare(b.to)
	})
	for i := range g.log[:max(len(g.log)-1, 0)] {
		a, b := g.log[i], g.log[i+1]
		if b.from.Before(a.to) {
			t.Errorf("tokens %d and %d were inside together for %v", a.token, b.token, a.to.Sub(b.from))
		}
		if b.token <= a.token {
			t.Errorf("token %d came after token %d", b.token, a.token)
		}
	}
}

// noReentrance: two acquires by one client exclude each other.
func noReentrance(t *run) {
	c := t.client()
	h := t.hold(c, t.request("mine"))
	t.refused(c, t.request("mine"), "by the client that holds it")
	w := t.queue(c, t.request("mine"))
	w.pending("while its own client held the name")
	h.free()
	w.granted(t.patience, "a waiter of the holder's client").free()
}

// tryHeld: a try for a held name says who holds it, since and until when.
func tryHeld(t *run) {
	c, other := t.client(), t.client()
	h := t.hold(c, t.request("busy"))
	var facts *driver.HeldError
	t.eventually(t.patience, "the try knows the holder's identity", func() bool {
		facts = t.refused(other, t.request("busy"), "that is held")
		return facts.Identity == identity && !facts.Since.IsZero()
	})
	const drift = time.Minute // between our clock and the engine's
	if facts.Name != "busy" || facts.Owner != "" && facts.Owner != h.Owner {
		t.Errorf("HeldError names %q and owner %q, want %q and %q", facts.Name, facts.Owner, "busy", h.Owner)
	}
	if facts.Since.Before(h.sent.Add(-drift)) || facts.Since.After(time.Now().Add(drift)) {
		t.Errorf("HeldError.Since is %v, acquired at %v", facts.Since, h.sent)
	}
	if t.traits.Leased && (facts.Until.Before(h.sent.Add(-drift)) || facts.Until.After(time.Now().Add(t.long+drift))) {
		t.Errorf("HeldError.Until is %v, acquired at %v for %v", facts.Until, h.sent, t.long)
	}
	h.free()
	t.hold(other, t.request("busy")).free()
}

// noSteal: nobody gets in before the lease ends, and a lease that is renewed
// outlasts its first TTL. A machine too slow to renew in time proves nothing.
func noSteal(t *run) {
	c, other := t.client(), t.client()
	h := t.hold(c, t.shortLease("kept"))
	end := h.sent.Add(t.ttl)
	for range 3 {
		time.Sleep(t.ttl * 5 / 8)
		t.refusedUntil(end, other, t.shortLease("kept"), "before the end of the lease")
		sent := time.Now()
		if err := h.renew(); err != nil && time.Now().Before(end) {
			t.Fatalf("renewing %v before the end of the lease: %v", time.Until(end), err)
		} else if err != nil {
			t.Logf("the renewal came too late to judge: %v", err)
			return
		}
		end = sent.Add(t.ttl)
	}
	h.free()
}
