package drivertest

import (
	"context"

	"github.com/fencelock/fencelock/driver"
)

// breakOwnerCases are about breaking one acquisition.
var breakOwnerCases = []Case{
	newCase("break-owner", anyEngine, breaksOwner),
}

// breakOwner calls BreakOwner of c.
func breakOwner(t *run, c Client, name, owner string) (token int64, err error) {
	t.Helper()
	type answer struct {
		token int64
		err   error
	}
	a := within(t, "BreakOwner", func(ctx context.Context) answer {
		token, err := c.(driver.OwnerBreaker).BreakOwner(ctx, name, owner, "conformance test")
		return answer{token, err}
	})
	return a.token, a.err
}

// broken breaks an acquisition and returns the new token.
func broken(t *run, c Client, h *held) int64 {
	t.Helper()
	token, err := breakOwner(t, c, h.req.Name, h.Owner)
	if err != nil {
		t.Fatalf("breaking %q of its owner: %v", h.req.Name, err)
	}
	if token <= h.Token {
		t.Fatalf("a break of token %d returned token %d", h.Token, token)
	}
	t.notHeld(h.renew(), "renewing an acquisition that was broken by its owner")
	t.notHeld(h.release(), "releasing an acquisition that was broken by its owner")
	return token
}

// breaksOwner: breaking one acquisition ends it and its minimum hold, notifies its holder, and
// grants to a waiter. It does not affect a successor, however late the break is, or others that
// share the name.
//
// It fails an engine that breaks any current holder of the name, or all shared holders.
func breaksOwner(t *run) {
	c, next := t.client(), t.client()
	if _, ok := as[driver.OwnerBreaker](next); !ok {
		t.Skip("the engine is no driver.OwnerBreaker")
	}
	_, err := breakOwner(t, next, "free", "nobody")
	t.notHeld(err, "breaking a free name of an owner")

	req := t.request("stuck")
	loud := watch(&req)
	h := t.hold(c, req)
	req = t.request("stuck")
	quiet := watch(&req)
	w := t.queue(next, req)
	_, err = breakOwner(t, next, "stuck", w.name)
	t.notHeld(err, "breaking a name for an owner that does not hold it")
	token := broken(t, next, h)
	loud.wantLoss(t)
	g := w.granted(t.patience, "the waiter behind a holder that was broken")
	if g.Token < token {
		t.Errorf("want rising tokens: holder %d, break %d, next %d", h.Token, token, g.Token)
	}
	_, err = breakOwner(t, c, "stuck", h.Owner)
	t.notHeld(err, "breaking the predecessor of the holder")
	g.stands("after a break of its predecessor")
	t.refused(c, t.request("stuck"), "after a late break of its holder's predecessor")
	g.free()
	t.settle()
	if n := quiet.calls.Load(); n != 0 {
		t.Errorf("OnLost of the successor was called %d times", n)
	}

	one, two := t.hold(c, t.shared("together")), t.hold(next, t.shared("together"))
	broken(t, next, one)
	two.stands("after another holder of its name was broken")
	t.refused(c, t.request("together"), "while a shared holder is left")
	t.hold(c, t.shared("together")).free()
	broken(t, c, two)
	t.take(t.patience, next, t.request("together")).free()

	if !keepsMinHolds(t.traits) {
		return
	}
	req = t.request("closed by mistake")
	req.MinHold = t.longMinHold()
	broken(t, next, t.hold(c, req))
	t.take(t.patience, c, t.request(req.Name)).free()
}
