package drivertest

import "time"

// atLeast: nobody gets a name before its minimum hold is over, even when the
// holder released it or was killed.
func atLeast(t *sitting) {
	c, doomed, next := t.client(), t.client(), t.client()
	least := t.ttl / 2
	for _, end := range []func(*held){
		func(h *held) { h.free() },
		func(*held) { doomed.Kill(t.TB) },
	} {
		req := t.brief("rationed")
		req.AtLeast = least
		holder := c
		if least > t.ttl {
			holder = doomed
		}
		h := t.hold(holder, req)
		end(h)
		t.refused(next, t.brief("rationed"), "before its minimum hold was over")
		if s := t.look(next, "rationed"); s != nil && s.NotBefore.IsZero() {
			t.Errorf("a minimum hold is not listed: %+v", s)
		}
		g := t.queue(next, t.brief("rationed")).granted(least+t.ttl+t.patience, "a waiter for a minimum hold")
		if early := time.Until(h.sent.Add(least)); early > t.slack() {
			t.Fatalf("a waiter got in %v before a minimum hold of %v was over", early, least)
		}
		g.free()
		least = t.ttl + t.ttl/2 // longer than the dead holder's lease
	}
	t.hold(next, t.brief("rationed")).free()
}
