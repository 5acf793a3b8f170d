package drivertest

import (
	"context"
	"errors"
	"strings"

	"github.com/fencelock/fencelock/driver"
)

// resizeCases are about limits that change.
var resizeCases = []Case{
	newCase("resize", limits, resize),
	newCase("resize-lasts", limits, resizeLasts),
}

// resizes changes limits through several clients, which must be driver.Resizers.
type resizes struct {
	*run
	cs []Client
}

// try sets the limit of a name and returns the engine's error.
func (t resizes) try(c Client, name string, limit int) error {
	t.Helper()
	return within(t.run, "Resize", func(ctx context.Context) error {
		return c.(driver.Resizer).Resize(ctx, name, limit)
	})
}

// set sets the limit of a name and fails the case on an error.
func (t resizes) set(c Client, name string, limit int) {
	t.Helper()
	if err := t.try(c, name, limit); err != nil {
		t.Fatalf("setting the limit of %q to %d: %v", name, limit, err)
	}
}

// resize: a new limit is in force immediately, whatever limits the requests have.
//
// It fails an engine that keeps the limit with each request, or recounts holders only when a
// request arrives.
func resize(t *run) {
	cs := t.clients(4)
	if _, ok := as[driver.Resizer](cs[0]); !ok {
		t.Skip("the engine is no driver.Resizer")
	}
	r := resizes{t, cs}
	r.down()
	r.up()
	if ordered(t.traits) {
		r.keepsOrder()
	}
	r.overrides()
	r.belowWeight()
	r.senseless()
}

// down: holders stay although they exceed the new limit, and nobody is granted until the limit
// leaves capacity.
func (t resizes) down() {
	t.Helper()
	cs := t.cs
	req := t.weighing("shrunk", 3, 0)
	in := []*held{t.hold(cs[0], req), t.hold(cs[1], req), t.hold(cs[2], req)}
	t.set(cs[3], "shrunk", 2)
	for _, h := range in {
		h.stands("after the limit was lowered below the number of holders")
	}
	t.refused(cs[3], req, "that has more holders than its lowered limit")
	in[0].free()
	t.refused(cs[0], req, "whose lowered limit is reached")
	w := t.queue(cs[3], req)
	w.pending("while the lowered limit was reached")
	t.view(cs[0]).weighed("shrunk", 2, []int{1, 1}, []int{1})
	in[1].free()
	h := w.granted(t.patience, "a waiter for a free seat under the lowered limit")
	t.refused(cs[0], req, "whose lowered limit is reached again")
	in[2].stands("under the lowered limit")
	in[2].free()
	h.free()
}

// up: waiters that fit under a higher limit are granted without a release.
func (t resizes) up() {
	t.Helper()
	cs := t.cs
	req := t.weighing("grown", 1, 0)
	h := t.hold(cs[0], req)
	ws := t.line(2, cs[1:3], req)
	for _, w := range ws {
		w.pending("while the limit was reached")
	}
	t.set(cs[3], "grown", 3)
	for _, w := range ws {
		w.granted(t.patience, "one of two waiters after the limit was raised by two").stands("after the limit was raised")
	}
	h.stands("beside the holders granted when the limit was raised")
	t.refused(cs[3], req, "whose raised limit is reached")
	h.free()
	t.hold(cs[3], req).free()
	for _, w := range ws {
		w.held.free()
	}
}

// keepsOrder: a higher limit lets nobody overtake a heavy waiter.
func (t resizes) keepsOrder() {
	t.Helper()
	cs := t.cs
	h := t.hold(cs[0], t.weighing("grown-in-order", 3, 3))
	heavy := t.queue(cs[1], t.weighing("grown-in-order", 3, 2))
	light := t.queue(cs[2], t.weighing("grown-in-order", 3, 1))
	t.set(cs[3], "grown-in-order", 4)
	light.pending("behind a heavy waiter that the raised limit is too low for")
	heavy.pending("for more than the raised limit left")
	t.set(cs[3], "grown-in-order", 5)
	g := heavy.granted(t.patience, "a heavy waiter after the limit was raised far enough")
	light.pending("while the raised limit was reached")
	t.set(cs[3], "grown-in-order", 6)
	light.granted(t.patience, "a light waiter after the limit was raised for it").free()
	g.free()
	writer, reader := t.queue(cs[1], t.request("grown-in-order")), t.queue(cs[2], t.weighing("grown-in-order", 3, 1))
	t.set(cs[3], "grown-in-order", 9)
	reader.pending("behind an exclusive waiter, after the limit was raised")
	h.stands("after the limit was raised four times")
	h.free()
	line{writer, reader}.inOrder()
}

// overrides: requests may have any limit; the new one is in force. Requests without a limit and
// exclusive ones are not affected.
func (t resizes) overrides() {
	t.Helper()
	cs := t.cs
	small := t.hold(cs[0], t.weighing("overridden", 2, 1))
	t.set(cs[3], "overridden", 3)
	large := t.hold(cs[1], t.weighing("overridden", 9, 1))
	if _, err := t.attempt(cs[2], t.shared("overridden")); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a shared request without a limit beside ones with a limit: got %v, want ErrInvalid", err)
	}
	w := t.queue(cs[2], t.weighing("overridden", 4, 2))
	w.pending("for 2 units while 1 was free")
	t.view(cs[3]).weighed("overridden", 3, []int{1, 1}, []int{2})
	small.free()
	g := w.granted(t.patience, "a waiter with a limit of its own")
	t.refused(cs[0], t.weighing("overridden", 9, 1), "whose new limit is reached")
	t.refused(cs[0], t.request("overridden"), "that shared holders have")
	g.free()
	large.free()
	h := t.hold(cs[0], t.request("overridden"))
	t.set(cs[3], "overridden", 5)
	h.stands("exclusively, when the limit changed")
	t.refused(cs[1], t.weighing("overridden", 5, 1), "that an exclusive holder has")
	h.free()
}

// belowWeight: a request that weighs more than the new limit is granted when there is no other
// holder, and then holds alone.
func (t resizes) belowWeight() {
	t.Helper()
	cs := t.cs
	light := t.weighing("outgrown", 5, 1)
	t.set(cs[3], "outgrown", 2)
	h := t.hold(cs[0], light)
	t.refused(cs[1], t.weighing("outgrown", 5, 4), "by a request heavier than its limit, while it is held")
	w := t.queue(cs[1], t.weighing("outgrown", 5, 4))
	w.pending("beside a holder though it weighs more than the limit")
	h.free()
	heavy := w.granted(t.patience, "a waiter heavier than the limit, when there was no other holder")
	t.refused(cs[0], light, "that a holder heavier than the limit has")
	next := t.queue(cs[2], light)
	next.pending("while a holder heavier than the limit was in")
	heavy.free()
	next.granted(t.patience, "a light waiter behind a holder heavier than the limit").free()
}

// senseless: invalid limits and names are ErrInvalid and change nothing.
func (t resizes) senseless() {
	t.Helper()
	c := t.cs[0]
	h := t.hold(c, t.weighing("sensible", 2, 0))
	for _, bad := range []struct {
		name  string
		limit int
	}{
		{"sensible", 0}, {"sensible", -1}, {"sensible", driver.MaxLimit + 1}, {"", 1}, {"a\x00b", 1}, {"a\xff", 1}, {strings.Repeat("n", 513), 1},
	} {
		if err := t.try(c, bad.name, bad.limit); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("setting the limit of %.10q to %d: got %v, want ErrInvalid", bad.name, bad.limit, err)
		}
	}
	ended, cancel := context.WithCancel(t.ctx)
	cancel()
	err := within(t.run, "Resize", func(context.Context) error { return c.(driver.Resizer).Resize(ended, "sensible", 1) })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("setting a limit with a context that has ended: got %v, want Canceled", err)
	}
	t.view(c).weighed("sensible", 2, []int{1}, nil)
	t.hold(c, t.weighing("sensible", 2, 0)).free()
	h.free()
}

// resizeLasts: a limit that was set before any request outlives all holders, and a restart of the
// engine.
//
// It fails an engine that keeps the limit with the holders, so that it is lost with the last one.
func resizeLasts(t *run) {
	cs := t.clients(3)
	if _, ok := as[driver.Resizer](cs[0]); !ok {
		t.Skip("the engine is no driver.Resizer")
	}
	req := t.weighing("lasting", 3, 0)
	resizes{t, cs}.set(cs[0], "lasting", 1)
	t.hold(cs[1], req).free()
	h := t.hold(cs[2], req)
	t.refused(cs[1], req, "whose limit was lowered before everybody left")
	if b, ok := as[driver.Breaker](cs[1]); ok {
		breakName(t, b, "lasting")
		h = t.take(t.patience, cs[2], req)
		t.refused(cs[1], req, "whose limit was lowered before it was broken")
	}
	h.free()
	t.world.Restart(t.TB)
	h = t.take(t.ttl+t.traits.MaxTTL+t.patience, cs[2], req)
	t.refused(cs[1], req, "whose limit was lowered before the engine restarted")
	h.free()
}
