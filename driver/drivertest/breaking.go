package drivertest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// breakCases are about breaking a name.
var breakCases = []Case{
	newCase("break", anyEngine, breaks),
	newCase("break-minimum", keepsMinHolds, breaksMinimum),
	newCase("lost-callback", anyEngine, lostCallback),
}

// watched counts the calls of a request's OnLost.
type watched struct {
	calls atomic.Int64
	lost  chan error // holds the cause of the first call
}

func watch(req *driver.Request) *watched {
	w := &watched{lost: make(chan error, 1)}
	req.OnLost = func(cause error) {
		if w.calls.Add(1) == 1 {
			w.lost <- cause
		}
	}
	return w
}

// wantLoss fails the case unless OnLost is called in time, with ErrBroken as the cause.
func (w *watched) wantLoss(t *run) {
	t.Helper()
	t.unlessOmitted("Request.OnLost was not called within %v of the break")
	select {
	case cause := <-w.lost:
		if !errors.Is(cause, driver.ErrBroken) {
			t.Errorf("OnLost was called with the cause %v, want ErrBroken", cause)
		}
	case <-time.After(t.patience):
		t.omits("Request.OnLost was not called within %v of the break", t.patience)
	}
}

// breaks: a break ends the acquisition, returns a token between those of the old holder and the
// next one, and grants to a waiter. A free name cannot be broken.
//
// It fails an engine that breaks without a new token, lets the broken holder renew, or wakes no
// waiter.
func breaks(t *run) {
	c, next := t.client(), t.client()
	b, ok := as[driver.Breaker](next)
	if !ok {
		t.Skip("the engine is no driver.Breaker")
	}
	err := within(t, "Break", func(ctx context.Context) error {
		_, err := b.Break(ctx, "free", "conformance test")
		return err
	})
	t.notHeld(err, "breaking a free name")
	h := t.hold(c, t.request("stuck"))
	w := t.queue(next, t.request("stuck"))
	token := breakName(t, b, "stuck")
	g := w.granted(t.patience, "the waiter behind a broken holder")
	if token <= h.Token || g.Token <= token {
		t.Errorf("want rising tokens: holder %d, break %d, next %d", h.Token, token, g.Token)
	}
	t.notHeld(h.renew(), "renewing a broken acquisition")
	t.notHeld(h.release(), "releasing a broken acquisition")
	g.stands("after its broken predecessor's release")
	g.free()

	h = t.hold(c, t.request("stuck"))
	breakName(t, b, "stuck")
	t.notHeld(h.renew(), "renewing a broken acquisition without a successor")
	for range 2 {
		t.hold(c, t.shared("stuck together"))
	}
	breakName(t, b, "stuck together")
	t.take(t.patience, next, t.request("stuck together")).free()
}

// breaksMinimum: a break also ends the minimum hold of the name, whether or not it is held, and a
// request that waits for that end is granted.
//
// It fails an engine that ends the acquisition but not the minimum hold.
func breaksMinimum(t *run) {
	c, next := t.client(), t.client()
	b, ok := as[driver.Breaker](next)
	if !ok {
		t.Skip("the engine is no driver.Breaker")
	}
	for _, stays := range []bool{false, true} {
		for _, waited := range []bool{false, true} {
			req := t.request("closed by mistake")
			req.MinHold = t.longMinHold()
			h := t.hold(c, req)
			if !stays {
				h.free()
			}
			var w *call
			if waited {
				w = t.queue(c, t.shortLease(req.Name)) // on PostgreSQL it polls three times in a TTL
			}
			token := breakName(t, b, req.Name)
			var g *held
			if waited {
				g = w.granted(t.patience, "a waiter for a minimum hold that was broken")
			} else {
				g = t.take(t.patience, c, t.request(req.Name))
			}
			if token <= h.Token || g.Token <= token {
				t.Errorf("want rising tokens: holder %d, break %d, next %d", h.Token, token, g.Token)
			}
			g.free()
		}
	}
}

// lostCallback: a holder that can be reached is notified of a break, once, and is not notified of
// its own release.
//
// It fails an engine that reports a holder's own release as a loss, reports a loss twice or with
// another cause than ErrBroken, or leaves it to the next renewal.
func lostCallback(t *run) {
	c, other := t.client(), t.client()
	req := t.request("released")
	quiet := watch(&req)
	t.hold(c, req).free()
	silent := func() {
		t.Helper()
		t.settle()
		if n := quiet.calls.Load(); n != 0 {
			t.Fatalf("OnLost was called %d times for a released acquisition", n)
		}
	}
	b, ok := as[driver.Breaker](other)
	if !ok {
		silent()
		t.Skip("the engine is no driver.Breaker, so holders cannot lose locks; no loss was reported for a released one")
	}
	req = t.request("broken")
	loud := watch(&req)
	h := t.hold(c, req)
	breakName(t, b, "broken")
	loud.wantLoss(t)
	t.notHeld(h.release(), "releasing after the loss")
	t.settle()
	if n := loud.calls.Load(); n != 1 {
		t.Errorf("OnLost was called %d times for one loss", n)
	}
	silent()
}
