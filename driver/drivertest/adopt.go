package drivertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// adoptCases are about acquisitions that pass from one client to another.
var adoptCases = []Case{
	newCase("adopt", anyEngine, adopts),
	newCase("adopt-ended", anyEngine, adoptsNothing),
	newCase("adopt-race", anyEngine, adoptRace),
	newCase("adopt-shared", anyEngine, adoptsShared),
	newCase("adopt-min-hold", keepsMinHolds, adoptsMinHold),
	newCase("adopt-input", anyEngine, adoptInput),
}

// needsAdopter skips the case if the engine is no driver.Adopter.
func (t *run) needsAdopter(c Client) {
	t.Helper()
	if _, ok := as[driver.Adopter](c); !ok {
		t.Skip("the engine is no driver.Adopter")
	}
}

// adoption lets c adopt an acquisition and returns the engine's answer.
func (t *run) adoption(c Client, old *held, req driver.Request) (*held, error) {
	t.Helper()
	type answer struct {
		held *held
		err  error
	}
	a := within(t, "Adopt", func(ctx context.Context) answer {
		h, err := t.adoptNow(ctx, c, old, req)
		return answer{h, err}
	})
	return a.held, a.err
}

// adoptNow is adoption for any goroutine.
func (t *run) adoptNow(ctx context.Context, c Client, old *held, req driver.Request) (*held, error) {
	h := &held{t: t, client: c, req: req, sent: time.Now()}
	g, err := c.(driver.Adopter).Adopt(ctx, old.lease(), req)
	if err != nil {
		return nil, err
	}
	h.examine(g)
	if g.Token <= old.Token {
		t.Errorf("adopting token %d of %q gave token %d", old.Token, req.Name, g.Token)
	}
	return h, nil
}

// passed lets c adopt an acquisition, which must have ended after that.
func (h *held) passed(c Client) *held {
	t := h.t
	t.Helper()
	next, err := t.adoption(c, h, h.req)
	if err != nil {
		t.Fatalf("adopting a held %q: %v", h.req.Name, err)
	}
	t.notHeld(h.renew(), "renewing an acquisition that was adopted")
	t.notHeld(h.release(), "releasing an acquisition that was adopted")
	next.stands("that was adopted")
	return next
}

// adopts: an acquisition passes to another client in one step, also back and from a client that is
// dead. Each time it gets a greater token, and the client that had it can neither renew nor release
// any more. Waiters stay in the queue.
//
// It fails an engine that releases and acquires again, or keeps the token or the owner.
func adopts(t *run) {
	cs := t.clients(4)
	t.needsAdopter(cs[0])
	first := t.hold(cs[0], t.request("passed"))
	w := t.queue(cs[3], t.request("passed"))
	second := first.passed(cs[1])
	if second.Floor != second.Token {
		t.Errorf("an adopted exclusive lock has the token %d and the floor %d", second.Token, second.Floor)
	}
	third := second.passed(cs[0])
	third = third.passed(cs[0]) // by its own client
	w.pending("while the lock was passed on")
	cs[0].Kill(t.TB)
	last, err := t.adoption(cs[2], third, third.req)
	if err != nil && !third.lapsed(err) {
		t.Fatalf("adopting from a dead client: %v", err)
	}
	if err == nil {
		t.refused(cs[1], t.request("passed"), "that was adopted from a dead client")
		last.free()
	}
	g := w.granted(t.patience, "the waiter behind a lock that was passed on")
	if g.Token <= third.Token {
		t.Errorf("want rising tokens: adopted %d, next %d", third.Token, g.Token)
	}
	g.free()
	t.hold(cs[1], t.request("passed")).free()
}

// adoptsNothing: an acquisition that was adopted, released, broken or lost cannot be adopted, and
// the attempt does not affect a successor.
//
// It fails an engine that adopts whatever is held under the name, or revives what has ended.
func adoptsNothing(t *run) {
	c, next, late := t.client(), t.client(), t.client()
	t.needsAdopter(c)
	none := func(old *held, what string) {
		t.Helper()
		_, err := t.adoption(late, old, t.request(old.req.Name))
		t.notHeld(err, "adopting "+what)
	}
	gone := func(old *held, what string) {
		t.Helper()
		none(old, what)
		successor := t.take(t.patience, next, t.request(old.req.Name))
		none(old, what+" and has a successor")
		successor.untouched()
	}
	h := t.hold(c, t.request("twice"))
	adopted := h.passed(next)
	none(h, "what was adopted before")
	adopted.untouched()
	gone(h, "what was adopted and released")

	h = t.hold(c, t.request("released"))
	h.free()
	gone(h, "what was released")

	stranger := t.hold(c, t.request("mine"))
	h = t.hold(c, t.request("other"))
	wrong := *h
	wrong.Grant.Owner = stranger.Owner
	none(&wrong, "with another owner")
	h.untouched()
	stranger.free()

	if b, ok := as[driver.Breaker](next); ok {
		h = t.hold(c, t.request("broken"))
		breakName(t, b, "broken")
		gone(h, "what was broken")
	}
	if t.traits.Leased {
		h = t.hold(c, t.shortLease("expired"))
		t.waitExpiry()
		time.Sleep(2 * t.clockWidth(next)) // the adopter has only the clock by which the holder has renewed
		gone(h, "what has expired")
	}
}

// adoptRace: of several clients that adopt one acquisition at the same time at most one gets it.
//
// It fails an engine that checks and replaces the holder in two steps.
func adoptRace(t *run) {
	cs := t.clients(5)
	t.needsAdopter(cs[0])
	for range 5 {
		old := t.hold(cs[0], t.request("contested"))
		var mu sync.Mutex // guards winners
		var winners []*held
		within(t, "Adopt", func(ctx context.Context) struct{} {
			var all sync.WaitGroup
			for _, c := range cs {
				all.Go(func() { // ends when the engine answers
					h, err := t.adoptNow(ctx, c, old, old.req)
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						winners = append(winners, h)
					case !errors.Is(err, driver.ErrNotHeld) && !errors.Is(err, driver.ErrUnavailable):
						t.Errorf("adopting at the same time as others: %v", err)
					}
				})
			}
			all.Wait()
			return struct{}{}
		})
		if len(winners) > 1 {
			t.Fatalf("%d clients adopted one acquisition", len(winners))
		}
		t.notHeld(old.renew(), "renewing an acquisition that several clients adopted")
		if len(winners) == 1 {
			winners[0].untouched()
		}
		t.take(t.patience, cs[0], t.request("contested")).free()
	}
}

// adoptsShared: only the one holder is replaced, with its share of the limit.
//
// It fails an engine that replaces all shared holders, or counts the adopter beside the old holder.
func adoptsShared(t *run) {
	c, next := t.client(), t.client()
	t.needsAdopter(c)
	one, two := t.hold(c, t.shared("together")), t.hold(next, t.shared("together"))
	three := two.passed(c)
	if three.Floor > one.Token {
		t.Errorf("a shared holder has the token %d, and one that adopted beside it the floor %d", one.Token, three.Floor)
	}
	one.stands("beside one that adopted")
	t.refused(next, t.request("together"), "that is shared")
	four := one.passed(next)
	if four.Token <= three.Token {
		t.Errorf("want rising tokens: %d, then %d", three.Token, four.Token)
	}
	three.free()
	t.refused(c, t.request("together"), "with a shared holder left")
	four.free()
	t.hold(c, t.request("together")).free()

	if !t.traits.Limits {
		return
	}
	heavy, light := t.hold(c, t.weighing("limited", 3, 2)), t.hold(c, t.weighing("limited", 3, 1))
	for _, req := range []driver.Request{t.weighing("limited", 3, 1), t.weighing("limited", 3, 3), t.weighing("limited", 4, 2), t.shared("limited")} {
		if _, err := t.adoption(next, heavy, req); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("adopting weight 2 of 3 as weight %d of %d: got %v, want ErrInvalid", req.Weight, req.Limit, err)
		}
	}
	heavy.stands("after adoptions with another weight")
	heavy = heavy.passed(next)
	t.refused(c, t.weighing("limited", 3, 1), "whose limit is reached")
	light.free()
	t.refused(c, t.weighing("limited", 3, 2), "with one unit left")
	heavy.free()
}

// adoptsMinHold: the minimum hold of the first holder continues, and a break of the adopter ends it.
//
// It fails an engine that keeps the minimum hold with the holder.
func adoptsMinHold(t *run) {
	c, next := t.client(), t.client()
	t.needsAdopter(c)
	req := t.request("closed")
	req.MinHold = t.longMinHold()
	first := t.hold(c, req)
	first.req.MinHold = 0 // that of the adopter
	first.passed(next).free()
	t.refused(c, t.request("closed"), "whose minimum hold began before it was adopted")

	if _, ok := as[driver.OwnerBreaker](c); !ok {
		return
	}
	req.Name = "broken"
	first = t.hold(c, req)
	first.req.MinHold = 0
	broken(t, c, first.passed(next))
	t.take(t.patience, next, t.request("broken")).free()
}

// adoptInput: a request that does not fit the acquisition is ErrInvalid, one whose context has
// ended returns the error of the context, and both change nothing.
//
// It fails an engine that adopts an exclusive lock as a shared one.
func adoptInput(t *run) {
	c, next := t.client(), t.client()
	t.needsAdopter(c)
	h := t.hold(c, t.request("fits"))
	closing, tiny := t.request("fits"), t.request("fits")
	closing.MinHold, tiny.TTL = time.Second, time.Nanosecond
	for what, req := range map[string]driver.Request{
		"as a shared lock": t.shared("fits"), "as another name": t.request("other"), "with a minimum hold": closing, "with a short TTL": tiny,
	} {
		if _, err := t.adoption(next, h, req); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("adopting %s: got %v, want ErrInvalid", what, err)
		}
	}
	empty := *h
	empty.Grant = driver.Grant{}
	if _, err := t.adoption(next, &empty, h.req); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("adopting a lease without an owner: got %v, want ErrInvalid", err)
	}
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	if _, err := next.(driver.Adopter).Adopt(ctx, h.lease(), h.req); !errors.Is(err, context.Canceled) {
		t.Errorf("adopting with an ended context: got %v, want its error", err)
	}
	h.untouched()
}
