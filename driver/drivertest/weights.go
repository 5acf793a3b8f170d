package drivertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencelock/fencelock/driver"
)

// weighing asks for a shared lease that takes so much of a limit, and does not
// end during the case.
func (t *run) weighing(name string, limit, weight int) driver.Request {
	req := t.shared(name)
	req.Limit, req.Weight = limit, weight
	return req
}

// weights: shared holders never take more than the limit together, what one took
// comes back when it leaves or dies, and a list shows it all.
func weights(t *run) {
	cs := t.clients(3)
	heavy := t.hold(cs[0], t.weighing("units", 5, 3))
	light := t.hold(cs[1], t.weighing("units", 5, 1))
	t.refused(cs[2], t.weighing("units", 5, 2), "that has 1 of 5 units left")
	plain := t.hold(cs[2], t.weighing("units", 5, 0))
	t.refused(cs[0], t.weighing("units", 5, 0), "that has no unit left")
	w := t.queue(cs[0], t.weighing("units", 5, 4))
	t.weighed(cs[1], "units", 5, []int{3, 1, 1}, []int{4})
	plain.free()
	w.pending("for 4 units while 1 was free")
	heavy.free()
	h := w.granted(t.patience, "a waiter for 4 free units")
	t.refused(cs[2], t.weighing("units", 5, 1), "whose units are taken again")
	t.weighed(cs[2], "units", 5, []int{1, 4}, nil)
	h.free()
	light.free()
	t.hold(cs[1], t.weighing("units", 5, 5)).free()
	t.unitsOfTheDead(cs[0])
	t.crowdOnScales(cs)
}

// unitsOfTheDead fails the case unless what a killed holder took comes back.
func (t *run) unitsOfTheDead(c Client) {
	t.Helper()
	req := t.weighing("inherited", 4, 3)
	req.TTL = t.ttl
	doomed := t.client()
	w, _ := t.queueBehind(t.hold(doomed, req), c, t.weighing("inherited", 4, 2))
	doomed.Kill(t.TB)
	w.granted(t.ttl+t.patience, "a waiter for the units of a dead holder").free()
}

// weighed fails the case unless c, if it lists at all, shows this limit in force,
// and holders and waiters of these weights.
func (t *run) weighed(c Client, name string, limit int, holders, waiters []int) {
	t.Helper()
	if _, ok := c.(driver.Lister); !ok {
		return
	}
	what := fmt.Sprintf("%q is listed with limit %d, holders of %v and waiters of %v", name, limit, holders, waiters)
	t.eventually(t.patience, what, func() bool {
		list := t.query(c, driver.Query{Prefix: name, Exact: true})
		if len(list) != 1 {
			return false
		}
		var in, next []int
		for _, h := range list[0].Holders {
			in = append(in, h.Weight)
		}
		for _, w := range list[0].Waiters {
			next = append(next, w.Weight)
		}
		return list[0].Limit == limit && slices.Equal(in, holders) && slices.Equal(next, waiters)
	})
}

// crowdOnScales lets many goroutines of several clients take all kinds of
// weights, and fails the case if the sum was ever too much.
func (t *run) crowdOnScales(cs []Client) {
	const workers, rounds, limit = 3, 5, 5
	var scales atomic.Int64
	var crowd sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.ctx, 6*t.patience)
	defer cancel()
	for i, c := range cs {
		for worker := range workers {
			crowd.Go(func() { // ends when its rounds are done or ctx ends
				for round := range rounds {
					t.weigh(ctx, c, &scales, t.weighing("scales", limit, 1+(i+worker+round)%limit))
				}
			})
		}
	}
	crowd.Wait()
}

// weigh acquires, puts its weight on the scales for a moment, and releases.
func (t *run) weigh(ctx context.Context, c Client, scales *atomic.Int64, req driver.Request) {
	req.Wait = true
	h, err := t.ask(ctx, c, req)
	if err != nil {
		t.Errorf("waiting for %d units: %v", req.Weight, err)
		return
	}
	if !t.confirmed(ctx, h) {
		return
	}
	if sum := scales.Add(int64(req.Weight)); sum > int64(req.Limit) {
		t.Errorf("holders of %d units were in together, the limit is %d", sum, req.Limit)
	}
	linger()
	scales.Add(-int64(req.Weight))
	if err := c.Release(ctx, h.lease()); err != nil {
		t.Errorf("releasing %d units: %v", req.Weight, err)
	}
}

// weightNotPassed: a heavy request at the head of the queue is passed by no
// light one, neither a try nor a waiter, and holds nobody up once it gave up.
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
}
