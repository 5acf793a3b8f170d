package drivertest

import (
	"time"
)

// expiry: a lease whose holder vanished ends after its TTL, not before, for a
// waiter and for a try.
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
		t.Errorf("the waiter got in %v before the end of the lease", early)
	}
	g.free()
	late := t.take(t.ttl+t.patience, next, t.shortLease("tried"))
	if late.Token <= tried.Token {
		t.Errorf("token %d came after token %d", late.Token, tried.Token)
	}
	late.free()
}

// crashFrees: without leases the locks of a client that died are free at once.
func crashFrees(t *run) {
	c, next := t.client(), t.client()
	t.hold(c, t.request("waited-for"))
	t.hold(c, t.request("tried"))
	w := t.queue(next, t.request("waited-for"))
	c.Kill(t.TB)
	w.granted(t.patience, "a waiter behind a dead holder").free()
	t.take(t.patience, next, t.request("tried")).free()
}

// renewExpired: a lapsed lease is not revived, whether or not it has a successor.
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
