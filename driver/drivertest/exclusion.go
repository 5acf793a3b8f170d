package drivertest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// exclusionCases are about mutual exclusion.
var exclusionCases = []Case{
	newCase("exclusion", anyEngine, exclusion),
	newCase("waiting-told", anyEngine, waitingTold),
	newCase("no-reentrance", anyEngine, noReentrance),
	newCase("try-held", anyEngine, tryHeld),
	newCase("no-steal", leased, noSteal),
}

// interval is the time that one holder spent in the critical section, by its own clock.
type interval struct {
	token    int64
	from, to time.Time
}

// guarded is protected by the lock of the exclusion case. Its counter is atomic so that a broken
// engine causes a lost update, not a data race.
type guarded struct {
	*run
	count  atomic.Int64
	inside atomic.Int64
	late   atomic.Int64 // visits that were skipped
	mu     sync.Mutex   // guards log
	log    []interval
}

// enter is the critical section. It reports whether the caller was alone in it.
func (g *guarded) enter(token int64) bool {
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

// linger stays in the critical section for a moment, so that a second holder would be noticed.
func linger() { time.Sleep(time.Millisecond) }

// exclusion: many goroutines of several clients increment a protected counter. No update is lost,
// no two visits overlap, and tokens increase from visit to visit.
//
// It fails an engine that does not exclude, in particular one that reads, decides and writes in
// separate steps.
func exclusion(t *run) {
	const clients, workers, rounds = 3, 4, 5
	g := guarded{run: t}
	var crowd sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.ctx, 6*t.patience)
	defer cancel()
	for _, c := range t.clients(clients) {
		for range workers {
			crowd.Go(func() { // ends when its rounds are done or ctx ends
				for range rounds {
					g.visit(ctx, c)
				}
			})
		}
	}
	crowd.Wait()
	const all = clients * workers * rounds
	if got, want := g.count.Load(), all-g.late.Load(); got != want || want < all/2 {
		t.Errorf("the guarded counter is %d after %d visits of %d", got, want, all)
	}
	g.sweep()
}

// visit acquires the lock, visits and releases it.
func (g *guarded) visit(ctx context.Context, c Client) {
	t := g.run
	req := t.request("exclusion")
	req.Wait = true
	h, err := t.ask(ctx, c, req)
	if err != nil {
		t.Errorf("waiting for the contended name: %v", err)
		return
	}
	if !h.confirmed(ctx) {
		g.late.Add(1)
		return
	}
	if !g.enter(h.Token) {
		t.Errorf("token %d was not alone inside", h.Token)
	}
	if err := c.Release(ctx, h.lease()); err != nil {
		t.Errorf("releasing the contended name: %v", err)
	}
}

// sweep fails the case if two visits overlap, or a later one does not have a greater token.
func (g *guarded) sweep() {
	slices.SortFunc(g.log, func(a, b interval) int {
		if c := a.from.Compare(b.from); c != 0 {
			return c
		}
		return a.to.Compare(b.to)
	})
	for i := range g.log[:max(len(g.log)-1, 0)] {
		a, b := g.log[i], g.log[i+1]
		if b.from.Before(a.to) {
			g.Errorf("tokens %d and %d were inside together for %v", a.token, b.token, a.to.Sub(b.from))
		}
		if b.token <= a.token {
			g.Errorf("token %d came after token %d", b.token, a.token)
		}
	}
}

// waitingTold: a request that must wait calls OnWait before it is granted. Most other cases depend
// on this.
//
// It fails an engine that never calls OnWait, so that callers do not learn what they wait for.
func waitingTold(t *run) {
	c, next := t.client(), t.client()
	h := t.hold(c, t.request("waited-for"))
	w := t.queue(next, t.request("waited-for"))
	w.pending("for a name that is held")
	h.free()
	w.granted(t.patience, "a waiter for a name that was released").free()
}

// noReentrance: two acquires of one client exclude each other.
//
// It fails an engine that identifies holders by process and takes a second request for the first
// one.
func noReentrance(t *run) {
	c := t.client()
	h := t.hold(c, t.request("mine"))
	t.refused(c, t.request("mine"), "by the client that holds it")
	w := t.queue(c, t.request("mine"))
	w.pending("while its own client held the name")
	h.free()
	w.granted(t.patience, "a waiter of the holder's client").free()
}

// tryHeld: a non-blocking request for a held name returns who holds it, since when and until when.
//
// It fails an engine that returns an error without these.
func tryHeld(t *run) {
	c, other := t.client(), t.client()
	h := t.hold(c, t.request("busy"))
	var facts *driver.HeldError
	t.eventually(t.patience, "a non-blocking request returns the holder's identity", func() bool {
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

// noSteal: nobody acquires the lock before the lease expires, and a renewed lease outlasts its
// first TTL. If the machine is too slow to renew in time, nothing is checked.
//
// It fails an engine that measures leases by another clock, or from the first acquisition instead
// of the last renewal.
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
			t.Logf("the renewal was too late to check: %v", err)
			return
		}
		end = sent.Add(t.ttl)
	}
	h.free()
}
