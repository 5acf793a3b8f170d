package drivertest

import (
	"context"
	"errors"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// absentCases are about waiters that die, stop or give up.
var absentCases = []Case{
	newCase("dead-waiter", ordered, deadWaiter),
	newCase("frozen-waiter", ordered, frozenWaiter),
	newCase("cancelled-waiter", anyEngine, cancelledWaiter),
	newCase("cancel-race", anyEngine, cancelRace),
}

// deadWaiter: a waiter whose client was killed costs the others no turn and no
// long delay.
//
// It fails an engine that keeps the dead in its queue, and hands the lock to one of
// them, with a whole lease.
func deadWaiter(t *run) {
	cs := t.clients(4)
	h := t.hold(cs[3], t.request("mourned"))
	ws := t.line(3, cs, t.request("mourned"))
	cs[1].Kill(t.TB)
	h.free()
	line{ws[0], ws[2]}.inOrder()
	t.take(t.patience, cs[3], t.request("mourned")).free()
}

// frozenWaiter: a waiter whose client stopped before its turn does not keep the
// others out for good. When it goes on it gets a turn or an error, and no two
// hold the name. An engine without leases may pass it or wait until it goes on.
//
// It fails an engine that waits for a waiter that does not answer, or that lets a thawed
// one believe in a grant which has gone to somebody else.
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

// honest fails the case if a waiter believes in a grant that another one has.
func (w *call) honest() {
	t := w.t
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
//
// It fails an engine that forgets to take a waiter off the queue, grants to nobody then,
// or tells the end of a wait with half of the error.
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

// cancelRace: a waiter that gives up in the instant of the release either has
// the lock or has left it to others; it is never lost.
//
// It fails an engine that lets a grant and a cancellation cross: the lock stays with a
// request whose caller has gone.
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

// race releases h and gives the wait up, in an order that differs by round.
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
