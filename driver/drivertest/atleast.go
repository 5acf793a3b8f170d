package drivertest

import (
	"time"

	"github.com/fencelock/fencelock/driver"
)

// atLeast: nobody gets a name before its minimum hold is over, even when the
// holder released it or was killed.
func atLeast(t *run) {
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
		t.listsUntil(over, next, "rationed")
		g := t.wait(next, t.shortLease("rationed")).granted(least+t.ttl+t.patience, "a waiter for a minimum hold")
		if early := time.Until(over); early > t.slack() {
			t.Fatalf("a waiter got in %v before a minimum hold of %v was over", early, least)
		}
		g.free()
		least = t.ttl + t.ttl/2 // longer than the dead holder's lease
	}
	t.hold(next, t.shortLease("rationed")).free()
}

// listsUntil fails the case if c, which may list, does not show the minimum hold of a
// name before its end.
func (t *run) listsUntil(end time.Time, c Client, name string) {
	t.Helper()
	if _, ok := c.(driver.Lister); !ok {
		return
	}
	for looked := false; ; looked = true {
		list := t.query(c, driver.Query{Prefix: name, Exact: true})
		if len(list) == 1 && !list[0].NotBefore.IsZero() {
			return
		}
		if !time.Now().Before(end) {
			if looked {
				t.Errorf("a minimum hold is not listed: %+v", list)
			}
			return
		}
		time.Sleep(t.tick())
	}
}
