package drivertest

import (
	"context"
	"errors"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// deadWaiter: a waiter whose client was killed costs the others no turn and no
// long delay.
func deadWaiter(t *run) {
	cs := t.clients(4)
	h := t.hold(cs[3], t.request("mourned"))
	ws := t.line(3, cs, t.request("mourned"))
	cs[1].Kill(t.TB)
	h.free()
	t.inOrder(ws[0], ws[2])
	t.take(t.patience, cs[3], t.request("mourned")).free()
}

// frozenWaiter: a waiter whose client stopped before its turn does not keep the
// others out for good. When it goes on it gets a turn or an error, and no two
// hold the name. An engine without leases may pass it or wait until it goes on.
func frozenWaiter(t *run) {
	cs := t.clients(6)
	h := t.hold(cs[5], t.request("cold"))
	ws := t.line(5, cs, t.shortLease("cold"))
	frozen, last := ws[3], ws[4]
	t.freeze(cs[3])
	h.free()
	t.inOrder(ws[:3]...)
	if !t.traits.Leased {
		t.thaw(cs[3])
		t.inAnyOrder(frozen, last)
		return
	}
	successor := last.granted(2*t.ttl+t.patience, "the waiter behind a frozen one")
	successor.stands("behind a frozen one")
	t.thaw(cs[3])
	t.settle()
	successor.stands("when the frozen waiter went on")
	if frozen.answered() {
		t.honest(frozen)
		successor.free()
		return
	}
	successor.free()
	frozen.finished(t.patience, "the waiter that was frozen")
	if frozen.err == nil {
		frozen.held.stands("that was frozen and got its turn")
		frozen.held.free()
	}
}

// inAnyOrder fails the case unless two waiters get in one after the other,
// whichever is first.
func (t *run) inAnyOrder(a, b *call) {
	t.Helper()
	select {
	case <-a.done:
	case <-b.done:
		a, b = b, a
	case <-time.After(t.patience):
	}
	t.inOrder(a, b)
}

// honest fails the case if a waiter believes in a grant that another one has.
func (t *run) honest(w *call) {
	t.Helper()
	if w.err != nil {
		return
	}
	if !w.held.Sent.IsZero() && time.Now().Before(w.held.Sent.Add(w.held.TTL)) {
		t.Fatalf("the thawed waiter holds token %d until %v, together with its successor",
			w.held.Token, w.held.Sent.Add(w.held.TTL))
	}
	t.notHeld(w.held.renew(), "confirming a grant that a frozen waiter missed")
}

// cancelledWaiter: a waiter that gives up says so in both languages, leaves the
// list, does not get the lock later, and costs the next waiter nothing.
func cancelledWaiter(t *run) {
	cs := t.clients(3)
	h := t.hold(cs[0], t.request("given-up"))
	quits := t.queue(cs[1], t.request("given-up"))
	stays := t.queue(cs[2], t.request("given-up"))
	quits.cancel()
	quits.finished(t.patience, "a waiter that gave up")
	for _, want := range []error{driver.ErrHeld, context.Canceled} {
		if !errors.Is(quits.err, want) {
			t.Errorf("giving up a wait: got %v, want also %v", quits.err, want)
		}
	}
	if s := t.look(cs[0], "given-up"); s != nil && len(s.Waiters) != 1 {
		t.Errorf("after one of two waiters gave up the engine lists %d", len(s.Waiters))
	}
	h.free()
	stays.granted(t.patience, "the waiter behind one that gave up").free()
	h = t.take(t.patience, cs[0], t.request("given-up"))
	t.outOfTime(cs[1], t.request("given-up"), "a wait that ran out of time")
	h.free()
	t.take(t.patience, cs[2], t.request("given-up")).free()
}

// outOfTime waits for a held name under a deadline, which must come after the engine has
// said that the name is held: if it came before, a later one is set.
func (t *run) outOfTime(c Client, req driver.Request, what string) {
	t.Helper()
	req.Wait = true
	joined := joins(&req)
	for limit := t.tick(); ; limit *= 2 {
		err := within(t, "Acquire", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			_, err := t.ask(ctx, c, req)
			return err
		})
		select {
		case <-joined:
		default:
			if errors.Is(err, driver.ErrUnavailable) && limit < t.patience/2 {
				continue // nothing was heard of the name
			}
		}
		if !errors.Is(err, driver.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v, want ErrHeld and DeadlineExceeded", what, err)
		}
		return
	}
}

// cancelRace: a waiter that gives up in the instant of the release either has
// the lock or has left it to others; it is never lost.
func cancelRace(t *run) {
	cs := t.clients(3)
	for round := range 60 {
		h := t.hold(cs[0], t.request("raced"))
		quits := t.queue(cs[1], t.request("raced"))
		var next *call
		if round%2 == 0 {
			next = t.queue(cs[2], t.request("raced"))
		}
		t.race(round, h, quits)
		quits.finished(t.patience, "a waiter that gave up during the release")
		if quits.err == nil {
			quits.held.free()
		}
		if next == nil {
			next = t.wait(cs[2], t.request("raced"))
		}
		next.granted(t.patience, "the next after a waiter that gave up during the release").free()
	}
}

// race releases h and gives the wait up, in an order that differs by round.
func (t *run) race(round int, h *held, quits *call) {
	t.Helper()
	switch round % 4 {
	case 0:
		quits.cancel()
		h.free()
	case 1:
		h.free()
		quits.cancel()
	case 2: // while the grant is on its way, or a moment later
		h.free()
		if t.bubble {
			synctest.Wait()
		} else {
			time.Sleep(time.Duration(round) * 50 * time.Microsecond)
		}
		quits.cancel()
	default:
		t.calls.Go(quits.cancel)
		h.free()
	}
}
