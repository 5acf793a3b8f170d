package drivertest

import (
	"fmt"
	"sync"

	"github.com/fencelock/fencelock/driver"
)

// line queues one waiter after the other, client after client.
func (t *run) line(n int, cs []Client, req driver.Request) []*call {
	t.Helper()
	ws := make([]*call, n)
	for i := range ws {
		ws[i] = t.queue(cs[i%len(cs)], req)
	}
	return ws
}

// inOrder fails the case unless the waiters get in one after the other, each as
// soon as the one before it has released.
func (t *run) inOrder(ws ...*call) {
	t.Helper()
	for i, w := range ws {
		h := w.granted(t.patience, fmt.Sprintf("waiter %d of %d", i+1, len(ws)))
		for j, later := range ws[i+1:] {
			if later.answered() {
				t.Fatalf("waiter %d was answered before waiter %d had released: %v", i+j+2, i+1, later.err)
			}
		}
		h.free()
	}
}

// fifo: ten waiters of several clients get in in the order they joined.
func fifo(t *run) {
	cs := t.clients(3)
	h := t.hold(cs[0], t.request("lined-up"))
	ws := t.line(10, cs, t.request("lined-up"))
	h.free()
	t.inOrder(ws...)
}

// orderProcess: clients get in in the order they joined, and one that has two
// waiters has one turn before it queues again.
func orderProcess(t *run) {
	cs := t.clients(4)
	h := t.hold(cs[0], t.request("lined-up"))
	first := t.queue(cs[1], t.request("lined-up"))
	again := t.wait(cs[1], t.request("lined-up"))
	t.settle()
	second := t.queue(cs[2], t.request("lined-up"))
	third := t.queue(cs[3], t.request("lined-up"))
	h.free()
	t.inOrder(first, second, third, again)
}

// noBarging: a try does not get in before a live waiter, not even while the lock
// is being handed over.
func noBarging(t *run) {
	cs := t.clients(3)
	for range 20 {
		h := t.hold(cs[0], t.request("next-please"))
		w := t.queue(cs[1], t.request("next-please"))
		var crowd sync.WaitGroup
		crowd.Go(func() { t.barge(cs[0]) })
		crowd.Go(func() { t.barge(cs[2]) })
		err := h.release()
		crowd.Wait()
		if err != nil {
			t.Fatalf("releasing under a waiter: %v", err)
		}
		t.barge(cs[2])
		w.granted(t.patience, "the waiter").free()
	}
}

// barge tries a name that has a waiter. Any goroutine may call it.
func (t *run) barge(c Client) {
	h, err := t.ask(t.ctx, c, t.request("next-please"))
	if err == nil {
		t.Errorf("a try got in before a waiter, with token %d", h.Token)
		c.Release(t.ctx, h.lease())
	}
}

// wakeUp: a waiter is told of a release long before any lease would end.
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
