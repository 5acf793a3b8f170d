package drivertest

import (
	"context"
	"sync/atomic"

	"github.com/fencelock/fencelock/driver"
)

// watchingCases are about what waiters learn, and who sees them.
var watchingCases = []Case{
	newCase("silent-waiter", anyEngine, silentWaiter),
	newCase("waiting-once", anyEngine, waitingOnce),
	newCase("panicking-callback", anyEngine, panickingCallback),
}

// silentWaiter: a waiter without OnWait is listed and granted like any other.
//
// It fails an engine that queues only requests with OnWait.
func silentWaiter(t *run) {
	cs := t.clients(2)
	if !t.view(cs[0]).can() {
		t.Skip("the engine is no driver.Lister")
	}
	h := t.hold(cs[0], t.request("listed"))
	w := t.wait(cs[1], t.request("listed"))
	t.view(cs[0]).waiters("listed", 1)
	if s := t.view(cs[0]).look("listed"); len(s.Waiters) != 1 || s.Waiters[0].Identity != identity {
		t.Errorf("a waiter without Request.OnWait is listed as %+v", s.Waiters)
	}
	h.free()
	w.granted(t.patience, "a waiter without Request.OnWait").free()
}

// waitingOnce: OnWait is called once, when the request joins the queue, however often its place
// changes.
//
// It fails an engine that calls OnWait at each change of place, which costs a message to every
// waiter at each release.
func waitingOnce(t *run) {
	cs := t.clients(4)
	h := t.hold(cs[0], t.request("told-once"))
	var calls [3]atomic.Int64
	var ws []*call
	for i := range calls {
		req := t.request("told-once")
		req.OnWait = func(driver.WaitInfo) { calls[i].Add(1) }
		ws = append(ws, t.queue(cs[1+i], req))
	}
	h.free()
	for range ws {
		t.eventually(t.patience, "one of several waiters gets in", func() bool {
			for i, w := range ws {
				if w != nil && w.answered() {
					w.granted(t.patience, "a waiter").free()
					ws[i] = nil
					return true
				}
			}
			return false
		})
	}
	for i := range calls {
		if n := calls[i].Load(); n != 1 {
			t.Errorf("OnWait of waiter %d of %d was called %d times", i+1, len(calls), n)
		}
	}
}

// panickingCallback: if OnWait panics and the caller recovers, no waiter and no holder remain, and
// the client still works.
//
// It fails an engine that holds a mutex or keeps the waiter in its queue during the callback.
func panickingCallback(t *run) {
	t.unlessOmitted(untold)
	cs := t.clients(3)
	for _, behind := range []bool{false, true} {
		h := t.hold(cs[0], t.request("panicked"))
		var ws line
		if behind { // another request of the same client
			ws = t.line(1, cs[1:], t.request("panicked"))
		}
		panics(t, cs[1], t.request("panicked"))
		t.view(cs[0]).waiters("panicked", len(ws))
		ws = append(ws, t.queue(cs[1], t.request("panicked")))
		h.free()
		if behind && !ordered(t.traits) {
			ws.inAnyOrder()
		} else {
			ws.inOrder()
		}
		t.take(t.patience, cs[2], t.request("panicked")).free()
		t.take(t.patience, cs[1], t.request("panicked")).free()
	}
}

// panics waits with a callback that panics, and recovers.
func panics(t *run, c Client, req driver.Request) {
	t.Helper()
	req.Wait = true
	called := make(chan struct{}, 1)
	req.OnWait = func(driver.WaitInfo) {
		called <- struct{}{}
		panic("a callback that panics")
	}
	err := within(t, "Acquire", func(ctx context.Context) (err error) {
		defer func() { _ = recover() }()
		_, err = c.Acquire(ctx, req)
		return err
	})
	if len(called) == 0 {
		t.Fatalf("OnWait of a waiter for %q was not called: %v", req.Name, err)
	}
}
