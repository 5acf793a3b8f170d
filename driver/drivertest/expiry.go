package drivertest

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// expiryCases are about the ends of leases and processes.
var expiryCases = []Case{
	newCase("expiry", leased, expiry),
	newCase("crash-frees", unleased, crashFrees),
	newCase("renew-expired", leased, renewExpired),
	newCase("renew-other-ttl", leased, renewOtherTTL),
}

// expiry: the lease of a holder that vanished expires after its TTL and not before, for a waiter
// and for a non-blocking request.
//
// It fails an engine that never ends leases, ends them early, or does not wake waiters when a lease
// expires.
func expiry(t *run) {
	c, next := t.client(), t.client()
	h := t.hold(c, t.shortLease("waited-for"))
	w, ok := t.queueBehind(h, next, t.shortLease("waited-for"))
	if !ok {
		return
	}
	tried := t.hold(c, t.shortLease("tried"))
	c.Kill(t.TB)
	t.refusedUntil(tried.sent.Add(t.ttl), next, t.shortLease("tried"), "of a dead client, before its lease ended")
	g := w.granted(t.ttl+t.patience, "a waiter behind a dead holder")
	if early := time.Until(h.sent.Add(t.ttl)); early > t.slack() {
		t.Errorf("the waiter was granted %v before the end of the lease", early)
	}
	g.free()
	late := t.take(t.ttl+t.patience, next, t.shortLease("tried"))
	if late.Token <= tried.Token {
		t.Errorf("token %d came after token %d", late.Token, tried.Token)
	}
	late.free()
}

// crashFrees: on an engine without leases, the locks of a client that died are released
// immediately.
//
// It fails an engine that has neither leases nor a way to detect that a process has ended.
func crashFrees(t *run) {
	c, next := t.client(), t.client()
	t.hold(c, t.request("waited-for"))
	t.hold(c, t.request("tried"))
	w := t.queue(next, t.request("waited-for"))
	c.Kill(t.TB)
	w.granted(t.patience, "a waiter behind a dead holder").free()
	t.take(t.patience, next, t.request("tried")).free()
}

// renewExpired: an expired lease cannot be renewed, whether or not it has a successor.
//
// It fails an engine that renews by name or revives expired leases: two clients would hold the
// name.
func renewExpired(t *run) {
	c, next := t.client(), t.client()
	h := t.hold(c, t.shortLease("lapsed"))
	t.waitExpiry()
	t.notHeld(h.renew(), "renewing a lapsed lease")
	successor := t.take(t.patience, next, t.request("lapsed"))
	t.notHeld(h.renew(), "renewing a lapsed lease that has a successor")
	successor.stands("after the renewal of its lapsed predecessor")
	t.refused(c, t.request("lapsed"), "that the successor holds")
	successor.free()
	t.notHeld(h.renew(), "renewing a lapsed lease whose successor is gone")
}

// renewOtherTTL: after a renewal with another TTL than the request's, the lease lasts at least for
// the shorter of the two. Beyond that, engines differ.
//
// It fails an engine that returns nil for such a renewal and extends nothing.
func renewOtherTTL(t *run) {
	c, next := t.client(), t.client()
	longer := 2 * t.ttl
	if most := t.traits.MaxTTL; most > 0 {
		longer = min(longer, most)
	}
	others := map[string]time.Duration{"longer": longer, "shorter": max(t.ttl*3/4, t.traits.MinTTL, driver.MinTTL)}
	held := map[string]*held{}
	for name := range others {
		held[name] = t.hold(c, t.shortLease(name))
	}
	time.Sleep(t.ttl / 2)
	for name, h := range held {
		l, sent := h.lease(), time.Now()
		l.TTL = others[name]
		err := within(t, "Renew", func(ctx context.Context) error { return c.Renew(ctx, []driver.Lease{l})[0] })
		if err != nil && (t.bubble || time.Since(h.sent) < t.ttl*7/8) {
			t.Fatalf("renewing with a %s TTL: %v", name, err)
		}
		if err != nil {
			t.Logf("a lease of %q was renewed too late to check: %v", name, err)
			delete(held, name)
		}
		h.sent, h.TTL = sent, min(l.TTL, h.req.TTL)
	}
	for _, name := range []string{"shorter", "longer"} {
		if h := held[name]; h != nil {
			end := h.sent.Add(h.TTL)
			time.Sleep(time.Until(end) - t.ttl/8)
			t.refusedUntil(end, next, t.shortLease(name), "after a renewal with a "+name+" TTL")
		}
	}
}
