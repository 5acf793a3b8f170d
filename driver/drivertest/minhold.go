package drivertest

import (
	"time"

	"github.com/fencelock/fencelock/driver"
)

// minimumCases are about minimum holds.
var minimumCases = []Case{
	newCase("min-hold", keepsMinHolds, minHold),
}

// minHold: nobody acquires a name before its minimum hold has ended, even if the holder released it
// or was killed.
//
// It fails an engine that ties the minimum hold to the holder, so that a release or the holder's
// death ends it, or does not wake waiters at its end.
func minHold(t *run) {
	c, doomed, next := t.client(), t.client(), t.client()
	least := t.ttl / 2
	for _, end := range []func(*held){
		func(h *held) { h.free() },
		func(*held) { doomed.Kill(t.TB) },
	} {
		req := t.request("rationed")
		holder := c
		if least > t.ttl {
			req, holder = t.shortLease("rationed"), doomed
		}
		req.MinHold = least
		h := t.hold(holder, req)
		end(h)
		over := h.sent.Add(least)
		t.refusedUntil(over, next, t.shortLease("rationed"), "before its minimum hold was over")
		t.view(next).closed("rationed", over)
		waiter := t.shortLease("rationed")
		if holder == c {
			waiter.Mode = driver.Shared // an exclusive minimum hold excludes shared requests too
		}
		g := t.wait(next, waiter).granted(least+t.ttl+t.patience, "a waiter for a minimum hold")
		if early := time.Until(over); early > t.slack() {
			t.Fatalf("a waiter was granted %v before the end of a minimum hold of %v", early, least)
		}
		g.free()
		least = t.ttl + t.ttl/2 // longer than the lease of the dead holder
	}
	t.hold(next, t.shortLease("rationed")).free()
}
