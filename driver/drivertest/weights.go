package drivertest

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/fencelock/fencelock/driver"
)

// weightCases are about holders with a weight of more than one.
var weightCases = []Case{
	newCase("weights", limits, weights),
	newCase("weight-not-passed", orderedLimits, weightNotPassed),
}

// weights: the weights of shared holders never exceed the limit. A holder's weight is returned when
// it releases or dies. List reports all weights.
//
// It fails an engine that counts holders instead of weights, or loses the weight of a dead holder.
func weights(t *run) {
	cs := t.clients(3)
	heavy := t.hold(cs[0], t.weighing("units", 5, 3))
	light := t.hold(cs[1], t.weighing("units", 5, 1))
	t.refused(cs[2], t.weighing("units", 5, 2), "that has 1 of 5 units left")
	plain := t.hold(cs[2], t.weighing("units", 5, 0))
	t.refused(cs[0], t.weighing("units", 5, 0), "that has no unit left")
	w := t.queue(cs[0], t.weighing("units", 5, 4))
	t.view(cs[1]).weighed("units", 5, []int{3, 1, 1}, []int{4})
	plain.free()
	w.pending("for 4 units while 1 was free")
	heavy.free()
	h := w.granted(t.patience, "a waiter for 4 free units")
	t.refused(cs[2], t.weighing("units", 5, 1), "whose units are taken again")
	t.view(cs[2]).weighed("units", 5, []int{1, 4}, nil)
	h.free()
	light.free()
	t.hold(cs[1], t.weighing("units", 5, 5)).free()
	most := t.weighing("most", driver.MaxLimit, driver.MaxLimit) // any overflow would make a small sum
	h = t.hold(cs[0], most)
	ws := t.line(2, cs[1:], most)
	t.refused(cs[2], t.weighing("most", driver.MaxLimit, 1), "that all units of the greatest limit are taken of")
	h.free()
	if ordered(t.traits) {
		ws.inOrder()
	} else {
		ws.inAnyOrder()
	}
	unitsOfTheDead(t, cs[0])
	(&scales{run: t}).crowd(cs)
}

// unitsOfTheDead fails the case unless the weight of a killed holder is returned.
func unitsOfTheDead(t *run, c Client) {
	t.Helper()
	req := t.weighing("inherited", 4, 3)
	req.TTL = t.ttl
	doomed := t.client()
	w, _ := t.queueBehind(t.hold(doomed, req), c, t.weighing("inherited", 4, 2))
	doomed.Kill(t.TB)
	w.granted(t.ttl+t.patience, "a waiter for the units of a dead holder").free()
}

// scales sum up the weights of the holders.
type scales struct {
	*run
	sum atomic.Int64
}

// crowd makes many goroutines of several clients acquire various weights, and fails the case if the
// sum ever exceeds the limit.
func (t *scales) crowd(cs []Client) {
	const workers, rounds, limit = 3, 5, 5
	var crowd sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.ctx, 6*t.patience)
	defer cancel()
	for i, c := range cs {
		for worker := range workers {
			crowd.Go(func() { // ends when its rounds are done or ctx ends
				for round := range rounds {
					t.weigh(ctx, c, t.weighing("scales", limit, 1+(i+worker+round)%limit))
				}
			})
		}
	}
	crowd.Wait()
}

// weigh acquires the lock, adds its weight for a moment, and releases it.
func (t *scales) weigh(ctx context.Context, c Client, req driver.Request) {
	req.Wait = true
	h, err := t.ask(ctx, c, req)
	if err != nil {
		t.Errorf("waiting for %d units: %v", req.Weight, err)
		return
	}
	if !h.confirmed(ctx) {
		return
	}
	if sum := t.sum.Add(int64(req.Weight)); sum > int64(req.Limit) {
		t.Errorf("holders of %d units were in together, the limit is %d", sum, req.Limit)
	}
	linger()
	t.sum.Add(-int64(req.Weight))
	if err := c.Release(ctx, h.lease()); err != nil {
		t.Errorf("releasing %d units: %v", req.Weight, err)
	}
}

// weightNotPassed: no light request overtakes a heavy one at the head of the queue, whether it
// waits or not. After the heavy one was cancelled, it delays nobody.
//
// It fails an engine that lets any request that fits overtake the head of the queue, which would
// starve.
func weightNotPassed(t *run) {
	cs := t.clients(4)
	light := t.weighing("heavy-first", 4, 1)
	first := t.hold(cs[0], t.weighing("heavy-first", 4, 2))
	heavy := t.queue(cs[1], t.weighing("heavy-first", 4, 3))
	t.refused(cs[2], light, "whose first waiter does not fit yet")
	second, third := t.queue(cs[2], light), t.queue(cs[3], light)
	second.pending("behind a heavy waiter")
	third.pending("behind a heavy waiter")
	first.free()
	h := heavy.granted(t.patience, "a heavy waiter")
	s := second.granted(t.patience, "a light waiter that fits beside the heavy one")
	third.pending("while all units were taken")
	h.free()
	quits := t.queue(cs[1], t.weighing("heavy-first", 4, 4))
	th := third.granted(t.patience, "the last light waiter")
	last := t.queue(cs[0], light)
	last.pending("behind a heavy waiter that has not given up")
	quits.cancel()
	l := last.granted(t.patience, "a light waiter behind a heavy one that gave up")
	for _, in := range []*held{s, th, l} {
		in.free()
	}
	only := t.hold(cs[0], t.weighing("seat", 1, 1))
	seat, writer := t.queue(cs[1], t.weighing("seat", 1, 1)), t.queue(cs[2], t.request("seat"))
	only.free()
	line{seat, writer}.inOrder()
}
