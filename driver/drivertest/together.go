package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// requests asks for several leases that do not end during the case.
func (t *run) requests(names ...string) []driver.Request {
	reqs := make([]driver.Request, len(names))
	for i, name := range names {
		reqs[i] = t.request(name)
	}
	return reqs
}

// askAll sends requests to be granted together, through c, which must be a
// driver.AllAcquirer, and looks at the grants. Any goroutine may call it.
func (t *run) askAll(ctx context.Context, c Client, reqs []driver.Request) ([]*held, error) {
	sent := time.Now()
	grants, err := c.(driver.AllAcquirer).AcquireAll(ctx, reqs)
	if err != nil {
		return nil, err
	}
	if len(grants) != len(reqs) {
		t.Errorf("AcquireAll of %d requests gave %d grants", len(reqs), len(grants))
		grants = append(grants, make([]driver.Grant, len(reqs))...)
	}
	all := make([]*held, len(reqs))
	for i, req := range reqs {
		all[i] = &held{t: t, client: c, req: req, sent: sent}
		all[i].examine(grants[i])
	}
	return all, nil
}

// attemptAll makes several requests together and returns the engine's answer.
func (t *run) attemptAll(c Client, reqs []driver.Request) ([]*held, error) {
	t.Helper()
	type answer struct {
		all []*held
		err error
	}
	a := within(t, "AcquireAll", func(ctx context.Context) answer {
		all, err := t.askAll(ctx, c, reqs)
		return answer{all, err}
	})
	return a.all, a.err
}

// holdAll acquires free names together and fails the case if that fails.
func (t *run) holdAll(c Client, reqs []driver.Request) []*held {
	t.Helper()
	all, err := t.attemptAll(c, reqs)
	if err != nil {
		t.Fatalf("acquiring %d free names together: %v", len(reqs), err)
	}
	return all
}

// refusedAll fails the case unless requests for several names are answered with
// the *HeldError of one.
func (t *run) refusedAll(c Client, reqs []driver.Request, name string) {
	t.Helper()
	_, err := t.attemptAll(c, reqs)
	if err == nil {
		t.Fatalf("%d names were granted together though %q is held", len(reqs), name)
	}
	if facts, ok := errors.AsType[*driver.HeldError](err); !ok || !errors.Is(err, driver.ErrHeld) || facts.Name != name {
		t.Fatalf("several names of which %q is held: got %v, want its *HeldError", name, err)
	}
}

// allOrNone: several names are granted in one step, each as an acquisition of
// its own, or none is, and nobody can tell that they were asked for.
func allOrNone(t *run) {
	cs := t.clients(3)
	if _, ok := cs[0].(driver.AllAcquirer); !ok {
		t.Skip("the engine is no driver.AllAcquirer")
	}
	switch probe, err := t.attemptAll(cs[0], t.requests("probe", "another")); {
	case errors.Is(err, driver.ErrUnsupported):
		t.Skip("AcquireAll answers driver.ErrUnsupported")
	case err != nil:
		t.Fatalf("acquiring two free names together: %v", err)
	default:
		probe[0].free()
		probe[1].free()
	}
	t.allHeld(cs)
	t.noneHeld(cs)
	t.allInvalid(cs)
	t.allBroken(cs)
	if ordered(t.traits) {
		t.allInLine(cs)
		t.allRaced(cs)
	}
	t.allGivenUp(cs)
	t.allAtDeath(cs[0])
	t.allOverlapping(cs)
}

// allHeld: each name is held and excludes, is released by itself, and its tokens
// grow, whichever way it was acquired.
func (t *run) allHeld(cs []Client) {
	t.Helper()
	reqs := t.requests("zinc", "lead", "gold")
	last := make([]int64, len(reqs))
	for range 2 {
		for i, h := range t.holdAll(cs[0], reqs) {
			h.stands("with others")
			t.refused(cs[0], reqs[i], "that its own client holds with others")
			t.refused(cs[1], reqs[i], "that is held with others")
			h.free()
			next := t.hold(cs[1], reqs[i])
			if h.Token <= last[i] || next.Token <= h.Token {
				t.Errorf("want rising tokens of %q: %d, then %d with others, then %d", reqs[i].Name, last[i], h.Token, next.Token)
			}
			last[i] = next.Token
			next.free()
		}
	}
}

// noneHeld: if one name is held, the error is about it and the others are free
// at once.
func (t *run) noneHeld(cs []Client) {
	t.Helper()
	reqs := t.requests("tin", "iron", "salt")
	for i, taken := range reqs {
		h := t.hold(cs[1], taken)
		w := t.queue(cs[2], taken)
		t.refusedAll(cs[0], reqs, taken.Name)
		for j, free := range reqs {
			if j != i {
				t.hold(cs[2], free).free()
			}
		}
		w.pending("while the name was asked for with others")
		h.stands("when its name was asked for with others")
		h.free()
		w.granted(t.patience, "a waiter for a name that was asked for with others").free()
	}
}

// allInvalid: one request that makes no sense is ErrInvalid for all.
func (t *run) allInvalid(cs []Client) {
	t.Helper()
	if _, err := t.attemptAll(cs[0], t.requests("valid", "")); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("two names of which one is empty: got %v, want ErrInvalid", err)
	}
	t.hold(cs[1], t.request("valid")).free()
}

// allBroken: the break of one name is the loss of that one alone.
func (t *run) allBroken(cs []Client) {
	t.Helper()
	b, ok := cs[1].(driver.Breaker)
	if !ok {
		return
	}
	reqs := t.requests("whole", "broken")
	quiet, loud := watch(&reqs[0]), watch(&reqs[1])
	all := t.holdAll(cs[0], reqs)
	t.breakName(b, "broken")
	loud.heard(t)
	t.notHeld(all[1].release(), "releasing a name that was acquired with others and broken")
	all[0].stands("when a name acquired with it was broken")
	all[0].free()
	if n := quiet.calls.Load(); n != 0 {
		t.Errorf("OnLost was called %d times for a name that was not broken", n)
	}
}
