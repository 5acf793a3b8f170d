package drivertest

import (
	"context"
	"errors"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// absentCases are about waiters that die, freeze or give up.
var absentCases = []Case{
	newCase("dead-waiter", ordered, deadWaiter),
	newCase("frozen-waiter", ordered, frozenWaiter),
	newCase("cancelled-waiter", anyEngine, cancelledWaiter),
	newCase("cancel-race", anyEngine, cancelRace),
}

// deadWaiter: a waiter whose client was killed does not delay the others for long.
//
// It fails an engine that keeps dead waiters in its queue and hands the lock to one of them, with a
// full lease.
func deadWaiter(t *run) {
	cs := t.clients(4)
	h := t.hold(cs[3], t.request("mourned"))
	ws := t.line(3, cs, t.request("mourned"))
	cs[1].Kill(t.TB)
	h.free()
	line{ws[0], ws[2]}.inOrder()
	t.take(t.patience, cs[3], t.request("mourned")).free()
}

// frozenWaiter: a waiter whose client freezes before it is granted does not block the others for
// good. After it is resumed it is granted or gets an error, and no two clients hold the name. An
// engine without leases may skip it, or wait until it is resumed.
//
// It fails an engine that waits for a waiter that does not answer, or lets a resumed one use a
// grant that has gone to another client.
func frozenWaiter(t *run) {
	cs := t.clients(6)
	h := t.hold(cs[5], t.request("cold"))
	ws := t.line(5, cs, t.shortLease("cold"))
	frozen, last := ws[3], ws[4]
	t.freeze(cs[3])
	h.free()
	ws[:3].inOrder()
	if !t.traits.Leased {
		t.thaw(cs[3])
		line{frozen, last}.inAnyOrder()
		return
	}
	successor := last.granted(2*t.ttl+t.patience, "the waiter behind a frozen one")
	successor.stands("behind a frozen one")
	t.thaw(cs[3])
	t.settle()
	successor.stands("when the frozen waiter went on")
	if frozen.answered() {
		frozen.honest()
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

// honest fails the case if a waiter uses a grant that another client has.
func (w *call) honest() {
	t := w.t
	t.Helper()
	if w.err != nil {
		return
	}
	if !w.held.Sent.IsZero() && time.Now().Before(w.held.Sent.Add(w.held.TTL)) {
		t.Fatalf("the resumed waiter holds token %d until %v, together with its successor",
			w.held.Token, w.held.Sent.Add(w.held.TTL))
	}
	t.notHeld(w.held.renew(), "confirming a grant that a frozen waiter missed")
}

// cancelledWaiter: a waiter that is cancelled returns both errors (ErrHeld and that of the
// context), is not listed any more, is not granted later, and does not delay the next waiter.
//
// It fails an engine that does not remove a waiter from its queue and grants to it, or returns only
// one of the errors.
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
	if s := t.view(cs[0]).look("given-up"); s != nil && len(s.Waiters) != 1 {
		t.Errorf("after one of two waiters gave up the engine lists %d", len(s.Waiters))
	}
	h.free()
	stays.granted(t.patience, "the waiter behind one that gave up").free()
	h = t.take(t.patience, cs[0], t.request("given-up"))
	t.outOfTime(cs[1], t.request("given-up"), "a wait that ran out of time")
	h.free()
	t.take(t.patience, cs[2], t.request("given-up")).free()
}

// cancelRace: a waiter that is cancelled during the release either has the lock or leaves it to
// others. The lock never gets lost.
//
// It fails an engine in which a grant and a cancellation can cross, so that the lock belongs to a
// request whose caller is gone.
func cancelRace(t *run) {
	cs := t.clients(3)
	for round := range 60 {
		h := t.hold(cs[0], t.request("raced"))
		quits := t.queue(cs[1], t.request("raced"))
		var next *call
		if round%2 == 0 {
			next = t.queue(cs[2], t.request("raced"))
		}
		race(round, h, quits)
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

// race releases h and cancels the wait, in an order that depends on round.
func race(round int, h *held, quits *call) {
	t := h.t
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
