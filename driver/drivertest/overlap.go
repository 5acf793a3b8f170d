package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// beside: names asked for together, beside waiters, other sets, and those who give up or die.
func (t sets) beside() {
	t.Helper()
	if ordered(t.traits) {
		t.allInLine()
		t.allRaced()
	}
	t.allGivenUp()
	t.allAtDeath()
	t.allOverlapping()
}

// allInLine: names asked for together pass no waiter, not even where they would
// fit beside the holder.
func (t sets) allInLine() {
	t.Helper()
	cs := t.cs
	reqs := []driver.Request{t.shared("spare"), t.shared("lined-up")}
	reader := t.hold(cs[1], t.shared("lined-up"))
	writer := t.queue(cs[2], t.request("lined-up"))
	// An engine that takes only exclusive names together has nothing to pass.
	if _, err := t.attemptAll(cs[0], reqs); !errors.Is(err, driver.ErrHeld) && !errors.Is(err, driver.ErrUnsupported) {
		t.Fatalf("two names of which one has a waiter: got %v, want ErrHeld", err)
	}
	t.hold(cs[0], t.request("spare")).free()
	reader.free()
	writer.granted(t.patience, "a waiter for a name that was asked for with others").free()
}

// allRaced is noBarging for names asked for together.
func (t sets) allRaced() {
	t.Helper()
	cs := t.cs
	for range 10 {
		h := t.hold(cs[0], t.request("raced"))
		w := t.queue(cs[1], t.request("raced"))
		var crowd sync.WaitGroup
		crowd.Go(func() { t.bargeAll(cs[0]) })
		crowd.Go(func() { t.bargeAll(cs[2]) })
		err := h.release()
		crowd.Wait()
		if err != nil {
			t.Fatalf("releasing under a waiter: %v", err)
		}
		t.bargeAll(cs[2])
		w.granted(t.patience, "the waiter").free()
	}
	t.hold(cs[2], t.request("spare")).free()
}

// bargeAll tries two names of which one has a waiter. Any goroutine may call it.
func (t sets) bargeAll(c Client) {
	all, err := t.askAll(t.ctx, c, t.requests("spare", "raced"))
	if err != nil {
		return
	}
	t.Errorf("two names were granted together before a waiter of one, with token %d", all[1].Token)
	t.leaveAll(t.ctx, all)
}

// leaveAll releases what was acquired together. Any goroutine may call it.
func (t sets) leaveAll(ctx context.Context, all []*held) {
	for _, h := range all {
		if err := h.client.Release(ctx, h.lease()); err != nil {
			t.Errorf("releasing %q, which was acquired with others: %v", h.req.Name, err)
		}
	}
}

// allGivenUp: a call whose context ends holds all names or leaves no trace.
func (t sets) allGivenUp() {
	t.Helper()
	cs := t.cs
	reqs := t.requests("given-up", "left", "dropped")
	for round := range 12 {
		ctx, cancel := context.WithCancel(t.ctx)
		switch round % 3 {
		case 0:
			cancel()
		case 1:
			t.calls.Go(cancel)
		default:
			time.AfterFunc(time.Duration(round)*time.Millisecond/4, cancel)
		}
		all := within(t.run, "AcquireAll", func(context.Context) []*held {
			all, _ := t.askAll(ctx, cs[0], reqs) // none, if it was given up in time
			return all
		})
		cancel()
		for _, h := range all {
			h.stands("after the context of its request ended")
			h.free()
		}
		for _, req := range reqs {
			t.take(t.patience/2, cs[1], req).free()
		}
	}
}

// allAtDeath: of a client that dies while it holds names, or asks for them,
// nothing outlasts a lease.
func (t sets) allAtDeath() {
	t.Helper()
	c := t.cs[0]
	holds := []driver.Request{t.shortLease("bequeathed"), t.shortLease("inherited")}
	asks := []driver.Request{t.shortLease("orphaned"), t.shortLease("unclaimed")}
	doomed := t.client()
	t.holdAll(doomed, holds)
	t.calls.Go(func() { t.askAll(t.ctx, doomed, asks) }) // ends with the client
	doomed.Kill(t.TB)
	for _, req := range slices.Concat(holds, asks) {
		t.take(t.ttl+t.patience, c, req).free()
	}
}

// room is what one of many names protects.
type room struct {
	name   string
	inside atomic.Int64
	last   atomic.Int64 // the token of the last visitor
}

// allOverlapping: clients take sets of names that overlap. No name ever has two
// holders, its tokens rise, and everybody gets all sets in the end.
func (t sets) allOverlapping() {
	t.Helper()
	cs := t.cs
	const workers, rounds = 3, 6
	rooms := make([]room, 5)
	for i := range rooms {
		rooms[i].name = fmt.Sprintf("room-%d", i)
	}
	var crowd sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.ctx, 6*t.patience)
	defer cancel()
	for _, c := range cs {
		for range workers {
			crowd.Go(func() { // ends when its rounds are done or ctx ends
				for range rounds {
					t.occupy(ctx, c, rooms)
				}
			})
		}
	}
	crowd.Wait()
	for i := range rooms {
		t.hold(cs[0], t.request(rooms[i].name)).free()
	}
}

// occupy takes some of the rooms, in any order, as soon as they are all free.
func (t sets) occupy(ctx context.Context, c Client, rooms []room) {
	some := rand.Perm(len(rooms))[:2+rand.N(2)]
	var reqs []driver.Request
	for _, i := range some {
		reqs = append(reqs, t.request(rooms[i].name))
	}
	for ctx.Err() == nil {
		all, err := t.askAll(ctx, c, reqs)
		switch {
		case err == nil:
			for i, h := range all {
				t.enter(&rooms[some[i]], h)
			}
			linger()
			for _, i := range some {
				rooms[i].inside.Add(-1)
			}
			t.leaveAll(ctx, all)
			return
		case !errors.Is(err, driver.ErrHeld) && !errors.Is(err, driver.ErrUnsupported):
			t.Errorf("acquiring a set of names: %v", err)
			return
		}
		time.Sleep(rand.N(5 * time.Millisecond))
	}
	t.Errorf("a set of %d names was never granted", len(some))
}

// enter notes a visitor. Any goroutine may call it.
func (t sets) enter(r *room, h *held) {
	if r.inside.Add(1) != 1 {
		t.Errorf("%q has two holders, one of them with token %d", r.name, h.Token)
	}
	if last := r.last.Swap(h.Token); last >= h.Token {
		t.Errorf("%q: token %d came after token %d", r.name, h.Token, last)
	}
}
