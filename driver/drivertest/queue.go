package drivertest

import (
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// queueCases are about the order of waiters.
var queueCases = []Case{
	newCase("fifo", fairToAll, fifo),
	newCase("order-process", fairToProcesses, orderProcess),
	newCase("no-barging", ordered, noBarging),
	newCase("wake-up", anyEngine, wakeUp),
}

// line is waiters in the order in which they joined.
type line []*call

// line queues n waiters, on the clients in turn.
func (t *run) line(n int, cs []Client, req driver.Request) line {
	t.Helper()
	ws := make(line, n)
	for i := range ws {
		ws[i] = t.queue(cs[i%len(cs)], req)
	}
	return ws
}

// inOrder fails the case unless the waiters are granted one after the other, each when the one
// before has released.
func (ws line) inOrder() {
	t := ws[0].t
	t.Helper()
	for i, w := range ws {
		h := w.granted(t.patience, fmt.Sprintf("waiter %d of %d", i+1, len(ws)))
		for j, later := range ws[i+1:] {
			if later.answered() {
				t.Fatalf("the request of waiter %d returned before waiter %d had released: %v", i+j+2, i+1, later.err)
			}
		}
		h.free()
	}
}

// inAnyOrder fails the case unless two waiters are granted one after the other, in any order.
func (ws line) inAnyOrder() {
	t, a, b := ws[0].t, ws[0], ws[1]
	t.Helper()
	select {
	case <-a.done:
	case <-b.done:
		a, b = b, a
	case <-time.After(t.patience):
	}
	line{a, b}.inOrder()
}

// fifo: ten waiters of several clients are granted in the order in which they joined.
//
// It fails an engine in which waiters race for a free lock.
func fifo(t *run) {
	cs := t.clients(3)
	h := t.hold(cs[0], t.request("lined-up"))
	ws := t.line(10, cs, t.request("lined-up"))
	h.free()
	ws.inOrder()
}

// orderProcess: clients are granted in the order in which they joined. A client with two waiters
// gets one grant before it queues again.
//
// It fails an engine that lets the second waiter of a process overtake those of others.
func orderProcess(t *run) {
	cs := t.clients(4)
	h := t.hold(cs[0], t.request("lined-up"))
	first := t.queue(cs[1], t.request("lined-up"))
	again := t.wait(cs[1], t.request("lined-up"))
	t.settle()
	second := t.queue(cs[2], t.request("lined-up"))
	third := t.queue(cs[3], t.request("lined-up"))
	h.free()
	line{first, second, third, again}.inOrder()
}

// noBarging: a non-blocking request does not overtake a live waiter, not even during a hand-over.
//
// It fails an engine that releases the lock first and looks for the next waiter afterwards, so that
// a request in between is granted.
func noBarging(t *run) {
	cs := t.clients(3)
	barge := func(c Client) { // any goroutine may call it
		if h, err := t.ask(t.ctx, c, t.request("next-please")); err == nil {
			t.Errorf("a non-blocking request was granted before a waiter, with token %d", h.Token)
			c.Release(t.ctx, h.lease())
		}
	}
	for range 20 {
		h := t.hold(cs[0], t.request("next-please"))
		w := t.queue(cs[1], t.request("next-please"))
		var crowd sync.WaitGroup
		crowd.Go(func() { barge(cs[0]) })
		crowd.Go(func() { barge(cs[2]) })
		err := h.release()
		crowd.Wait()
		if err != nil {
			t.Fatalf("releasing under a waiter: %v", err)
		}
		barge(cs[2])
		w.granted(t.patience, "the waiter").free()
	}
}

// wakeUp: a waiter is woken by a release, long before any lease would expire.
//
// It fails an engine that wakes no waiter, or only one of several shared waiters.
func wakeUp(t *run) {
	cs := t.clients(3)
	h := t.hold(cs[0], t.request("awaited"))
	for i := range 5 {
		w := t.queue(cs[i%len(cs)], t.request("awaited"))
		h.free()
		h = w.granted(t.patience, "the only waiter after a release")
	}
	readers := t.line(4, cs, t.shared("awaited"))
	h.free()
	for _, r := range readers {
		r.granted(t.patience, "one of four shared waiters after a release")
	}
}
