package drivertest

import (
	"context"

	"github.com/fencelock/fencelock/driver"
)

// releaseCases are about who may release, and when.
var releaseCases = []Case{
	newCase("release-owner-checked", anyEngine, releaseOwnerChecked),
	newCase("release-twice", anyEngine, releaseTwice),
	newCase("late-release", anyEngine, lateRelease),
}

// releaseOwnerChecked: a release with a wrong owner or token is ErrNotHeld and does not affect the
// holder, whichever client sends it.
//
// It fails an engine that releases by name, or by owner only.
func releaseOwnerChecked(t *run) {
	c, other := t.client(), t.client()
	h := t.hold(c, t.request("owned"))
	elsewhere := t.hold(c, t.request("elsewhere"))
	wrong := map[string]driver.Lease{}
	l := h.lease()
	l.Owner = elsewhere.Owner
	wrong["another owner"] = l
	l = h.lease()
	l.Owner = ""
	wrong["no owner"] = l
	l = h.lease()
	l.Token++
	wrong["another token"] = l
	l = elsewhere.lease()
	l.Name = h.req.Name
	wrong["another acquisition"] = l
	for what, l := range wrong {
		for _, sender := range []Client{c, other} {
			t.notHeld(t.release(sender, l), "releasing with "+what)
		}
	}
	h.stands("after releases that were not its own")
	t.refused(other, t.request("owned"), "after releases that were not the holder's")
	h.free()
}

// releaseTwice: the second release is ErrNotHeld and does not release a successor's lock.
//
// It fails an engine that reports success for the second release, or lets it release the
// successor's lock.
func releaseTwice(t *run) {
	c, next := t.client(), t.client()
	h := t.hold(c, t.request("twice"))
	h.free()
	t.notHeld(h.release(), "releasing twice")
	t.notHeld(h.renew(), "renewing after a release")
	successor := t.hold(next, t.request("twice"))
	t.notHeld(h.release(), "releasing a third time, under a successor")
	successor.stands("after its predecessor's third release")
	successor.free()
}

// lateRelease: releasing an acquisition that expired or was broken does not affect the successor.
//
// It fails an engine that releases by name: the successor would lose its lock.
func lateRelease(t *run) {
	c, next := t.client(), t.client()
	if t.traits.Leased {
		h := t.hold(c, t.shortLease("expired"))
		w, _ := t.queueBehind(h, next, t.request("expired"))
		successor := w.granted(t.ttl+t.patience, "a waiter behind a lapsed lease")
		t.notHeld(h.release(), "releasing an expired acquisition")
		successor.untouched()
	}
	if b, ok := as[driver.Breaker](next); ok {
		h := t.hold(c, t.request("broken"))
		breakName(t, b, "broken")
		successor := t.take(t.patience, next, t.request("broken"))
		t.notHeld(h.release(), "releasing a broken acquisition")
		successor.untouched()
	}
}

// untouched fails the case unless the successor still holds the lock and excludes others.
func (h *held) untouched() {
	t := h.t
	t.Helper()
	h.stands("after the late release of its predecessor")
	t.refused(t.client(), t.request(h.req.Name), "that the successor holds")
	h.free()
}

// breakName breaks a held name and returns the new token.
func breakName(t *run, b driver.Breaker, name string) int64 {
	t.Helper()
	type answer struct {
		token int64
		err   error
	}
	a := within(t, "Break", func(ctx context.Context) answer {
		token, err := b.Break(ctx, name, "conformance test")
		return answer{token, err}
	})
	if a.err != nil {
		t.Fatalf("breaking %q: %v", name, a.err)
	}
	return a.token
}
