package drivertest

import (
	"time"

	"github.com/fencelock/fencelock/driver"
)

// traceCases are about traces.
var traceCases = []Case{
	newCase("trace", anyEngine, trace),
}

// The traces of the requests in the case.
const (
	holderTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	waiterTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
	holderKind  = "election"
)

// traced is identity with a maximum hold.
var traced = func() driver.Identity {
	id := identity
	id.MaxHold = 25 * time.Minute
	return id
}()

// trace: a request for a held name returns the trace, the kind and the maximum hold of the holder's
// request, and List returns those of holders and waiters. Invalid ones do not damage other fields.
//
// It fails an engine that does not store them, or stores them so that spaces in them shift the
// fields behind them.
func trace(t *run) {
	c, next := t.client(), t.client()
	req := t.request("traced")
	req.Trace, req.Kind, req.MaxHold = holderTrace, holderKind, traced.MaxHold
	h := t.hold(c, req)
	if whoHolds(t, next, "traced").Note == "" {
		t.Skip("the engine stores no notes, and so no traces")
	}
	showsTrace(t, "a refused request", whoHolds(t, next, "traced"), holderTrace, holderKind)
	informed := make(chan driver.WaitInfo, 1)
	req.Trace, req.Kind, req.OnWait = waiterTrace, "", func(info driver.WaitInfo) {
		select {
		case informed <- info:
		default: // it is told once
		}
	}
	w := t.queue(next, req)
	if info := <-informed; info.Held != nil && info.Held.Note != "" {
		showsTrace(t, "OnWait", info.Held.Identity, holderTrace, holderKind)
	}
	listsTraces(t, c)
	h.free()
	w.granted(t.patience, "a waiter with a trace").free()

	req = t.request("mistraced")
	req.Trace, req.Kind, req.MaxHold = "no trace, but 5 words", "a kind of 5 words", traced.MaxHold
	h = t.hold(c, req)
	got := whoHolds(t, next, "mistraced")
	if got.Trace, got.Kind = "", ""; got != traced {
		t.Errorf("beside an invalid trace and kind the holder is shown as %+v", got)
	}
	h.free()
}

// listsTraces fails the case unless List returns the traces and kinds of the holder and of the
// waiter. It does nothing if c is no Lister.
func listsTraces(t *run, c Client) {
	t.Helper()
	if !t.view(c).can() {
		return
	}
	var s *driver.Status
	t.eventually(t.patience, "a holder and a waiter are listed", func() bool {
		s = t.view(c).look("traced")
		return len(s.Holders) == 1 && len(s.Waiters) == 1
	})
	showsTrace(t, "the list of holders", s.Holders[0].Identity, holderTrace, holderKind)
	showsTrace(t, "the list of waiters", s.Waiters[0].Identity, waiterTrace, "")
}

// whoHolds requests a held name until it learns the holder.
func whoHolds(t *run, c Client, name string) (who driver.Identity) {
	t.Helper()
	t.eventually(t.patience, "a refused request returns the holder", func() bool {
		who = t.refused(c, t.request(name), "that is held").Identity
		return who != driver.Identity{}
	})
	return who
}

// showsTrace fails the case unless who has this trace and kind.
func showsTrace(t *run, where string, who driver.Identity, trace, kind string) {
	t.Helper()
	id := traced
	if id.Trace, id.Kind = trace, kind; who != id {
		t.Errorf("%s shows %+v, want %+v", where, who, id)
	}
}
