package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// setCases are about several names of one client.
var setCases = []Case{
	newCase("sets", anyEngine, setsOfNames),
}

// sets are names that clients acquire one after the other, in byte order, as
// fencelock.Locker.AcquireAll does.
type sets struct {
	*run
	cs []Client
}

// setsOfNames: a client holds several names, each as a separate acquisition. Clients that acquire
// overlapping sets in the same order all get them.
func setsOfNames(r *run) {
	t := sets{r, r.clients(3)}
	t.allHeld()
	t.oneBroken()
	t.allAtDeath()
	t.overlapping()
}

// requests returns requests with leases that do not expire during the case.
func (t sets) requests(names ...string) []driver.Request {
	reqs := make([]driver.Request, len(names))
	for i, name := range names {
		reqs[i] = t.request(name)
	}
	return reqs
}

// askAll makes requests in the order of their names. If one fails, it releases the others. Any
// goroutine may call it.
func (t sets) askAll(ctx context.Context, c Client, reqs []driver.Request) ([]*held, error) {
	reqs = slices.SortedFunc(slices.Values(reqs), func(a, b driver.Request) int { return strings.Compare(a.Name, b.Name) })
	var all []*held
	for _, req := range reqs {
		h, err := t.ask(ctx, c, req)
		if err != nil {
			t.leaveAll(context.WithoutCancel(ctx), all)
			return nil, err
		}
		all = append(all, h)
	}
	return all, nil
}

// holdAll acquires free names and fails the case on an error.
func (t sets) holdAll(c Client, reqs []driver.Request) (all []*held) {
	t.Helper()
	for _, req := range reqs {
		all = append(all, t.hold(c, req))
	}
	return all
}

// leaveAll releases acquisitions. Any goroutine may call it.
func (t sets) leaveAll(ctx context.Context, all []*held) {
	for _, h := range all {
		if err := h.client.Release(ctx, h.lease()); err != nil {
			t.Errorf("releasing %q, which was acquired with others: %v", h.req.Name, err)
		}
	}
}

// allHeld: each name is held, excludes others and is released separately, and its tokens increase.
func (t sets) allHeld() {
	t.Helper()
	cs := t.cs
	reqs := t.requests("gold", "lead", "zinc")
	last := make([]int64, len(reqs))
	for range 2 {
		all := t.holdAll(cs[0], reqs)
		for i, h := range all {
			t.refused(cs[0], reqs[i], "that its own client holds with others")
			t.refused(cs[1], reqs[i], "that is held with others")
			h.free()
			for _, other := range all[i+1:] {
				other.stands("when another name of its client was released")
			}
			next := t.hold(cs[1], reqs[i])
			if h.Token <= last[i] || next.Token <= h.Token {
				t.Errorf("want rising tokens of %q: %d, then %d with others, then %d", reqs[i].Name, last[i], h.Token, next.Token)
			}
			last[i] = next.Token
			next.free()
		}
	}
}

// oneBroken: breaking one name does not affect the others.
func (t sets) oneBroken() {
	t.Helper()
	cs := t.cs
	b, ok := as[driver.Breaker](cs[1])
	if !ok {
		return
	}
	reqs := t.requests("broken", "whole")
	loud, quiet := watch(&reqs[0]), watch(&reqs[1])
	all := t.holdAll(cs[0], reqs)
	breakName(t.run, b, "broken")
	loud.wantLoss(t.run)
	t.notHeld(all[0].release(), "releasing a name that was acquired with others and broken")
	all[1].stands("when a name acquired with it was broken")
	all[1].free()
	if n := quiet.calls.Load(); n != 0 {
		t.Errorf("OnLost was called %d times for a name that was not broken", n)
	}
}

// allAtDeath: if a client dies while it holds or acquires names, all of them are free after their
// leases.
func (t sets) allAtDeath() {
	t.Helper()
	c := t.cs[0]
	holds := []driver.Request{t.shortLease("bequeathed"), t.shortLease("inherited")}
	asks := []driver.Request{t.shortLease("orphaned"), t.shortLease("unclaimed")}
	doomed := t.client()
	t.holdAll(doomed, holds)
	for _, req := range asks {
		t.calls.Go(func() { _, _ = t.ask(t.ctx, doomed, req) }) // ends with the client
	}
	doomed.Kill(t.TB)
	for _, req := range slices.Concat(holds, asks) {
		t.take(t.ttl+t.patience, c, req).free()
	}
}

// slot is protected by one of several names.
type slot struct {
	name   string
	inside atomic.Int64
	last   atomic.Int64 // the token of the last visitor
}

// overlapping: clients acquire overlapping sets of names, some waiting and some not. No name ever
// has two holders, its tokens increase, and every client gets all of its sets in the end.
func (t sets) overlapping() {
	t.Helper()
	cs := t.cs
	const workers, rounds = 3, 4
	slots := make([]slot, 5)
	for i := range slots {
		slots[i].name = fmt.Sprintf("room-%d", i)
	}
	var crowd sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.ctx, 6*t.patience)
	defer cancel()
	for _, c := range cs {
		for n := range workers {
			crowd.Go(func() { // ends when its rounds are done or ctx ends
				for range rounds {
					t.occupy(ctx, c, slots, n > 0)
				}
			})
		}
	}
	crowd.Wait()
	for i := range slots {
		t.hold(cs[0], t.request(slots[i].name)).free()
	}
}

// occupy acquires some of the rooms, and retries if it does not wait for them.
func (t sets) occupy(ctx context.Context, c Client, slots []slot, wait bool) {
	some := rand.Perm(len(slots))[:2+rand.N(2)]
	slices.Sort(some)
	var reqs []driver.Request
	for _, i := range some {
		req := t.request(slots[i].name)
		req.Wait = wait
		reqs = append(reqs, req)
	}
	for ctx.Err() == nil {
		all, err := t.askAll(ctx, c, reqs)
		switch {
		case err == nil:
			for i, h := range all {
				t.enter(&slots[some[i]], h)
			}
			linger()
			for _, i := range some {
				slots[i].inside.Add(-1)
			}
			t.leaveAll(ctx, all)
			return
		case wait || !errors.Is(err, driver.ErrHeld):
			t.Errorf("acquiring a set of names: %v", err)
			return
		}
		time.Sleep(rand.N(5 * time.Millisecond))
	}
	t.Errorf("a set of %d names was never granted", len(some))
}

// enter records a visitor. Any goroutine may call it.
func (t sets) enter(r *slot, h *held) {
	if r.inside.Add(1) != 1 {
		t.Errorf("%q has two holders, one of them with token %d", r.name, h.Token)
	}
	if last := r.last.Swap(h.Token); last >= h.Token {
		t.Errorf("%q: token %d came after token %d", r.name, h.Token, last)
	}
}
