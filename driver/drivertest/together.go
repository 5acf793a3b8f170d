package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// togetherCases are about several names at once.
var togetherCases = []Case{
	newCase("all-or-none", anyEngine, allOrNone),
}

// sets are names that some clients, which must be driver.AllAcquirers, ask for together.
type sets struct {
	*run
	cs []Client
}

// requests asks for several leases that do not end during the case.
func (t sets) requests(names ...string) []driver.Request {
	reqs := make([]driver.Request, len(names))
	for i, name := range names {
		reqs[i] = t.request(name)
	}
	return reqs
}

// askAll sends requests to be granted together, and looks at the grants. Any
// goroutine may call it.
func (t sets) askAll(ctx context.Context, c Client, reqs []driver.Request) ([]*held, error) {
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
		all[i] = &held{t: t.run, client: c, req: req, sent: sent}
		all[i].examine(grants[i])
	}
	return all, nil
}

// attemptAll makes several requests together and returns the engine's answer.
func (t sets) attemptAll(c Client, reqs []driver.Request) ([]*held, error) {
	t.Helper()
	type answer struct {
		all []*held
		err error
	}
	a := within(t.run, "AcquireAll", func(ctx context.Context) answer {
		all, err := t.askAll(ctx, c, reqs)
		return answer{all, err}
	})
	return a.all, a.err
}

// holdAll acquires free names together and fails the case if that fails.
func (t sets) holdAll(c Client, reqs []driver.Request) []*held {
	t.Helper()
	all, err := t.attemptAll(c, reqs)
	if err != nil {
		t.Fatalf("acquiring %d free names together: %v", len(reqs), err)
	}
	return all
}

// refusedAll fails the case unless requests for several names are answered with
// the *HeldError of one.
func (t sets) refusedAll(c Client, reqs []driver.Request, name string) {
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
//
// It fails an engine that takes one name after the other, and gives back what it got
// when one is held: others see that.
func allOrNone(r *run) {
	cs := r.clients(3)
	t := sets{r, cs}
	if _, ok := as[driver.AllAcquirer](cs[0]); !ok {
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
	t.allHeld()
	t.noneHeld()
	t.allInvalid()
	t.allBroken()
	t.beside()
}

// allHeld: each name is held and excludes, is released by itself, and its tokens
// grow, whichever way it was acquired.
func (t sets) allHeld() {
	t.Helper()
	cs := t.cs
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
func (t sets) noneHeld() {
	t.Helper()
	cs := t.cs
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
func (t sets) allInvalid() {
	t.Helper()
	cs := t.cs
	if _, err := t.attemptAll(cs[0], t.requests("valid", "")); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("two names of which one is empty: got %v, want ErrInvalid", err)
	}
	t.hold(cs[1], t.request("valid")).free()
}

// allBroken: the break of one name is the loss of that one alone.
func (t sets) allBroken() {
	t.Helper()
	cs := t.cs
	b, ok := as[driver.Breaker](cs[1])
	if !ok {
		return
	}
	reqs := t.requests("whole", "broken")
	quiet, loud := watch(&reqs[0]), watch(&reqs[1])
	all := t.holdAll(cs[0], reqs)
	breakName(t.run, b, "broken")
	loud.heard(t.run)
	t.notHeld(all[1].release(), "releasing a name that was acquired with others and broken")
	all[0].stands("when a name acquired with it was broken")
	all[0].free()
	if n := quiet.calls.Load(); n != 0 {
		t.Errorf("OnLost was called %d times for a name that was not broken", n)
	}
}
