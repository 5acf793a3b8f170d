package drivertest

import (
	"errors"

	"github.com/fencelock/fencelock/driver"
)

// sharedCases are about shared holders and limits.
var sharedCases = []Case{
	newCase("shared", anyEngine, shared),
	newCase("limit", limits, limit),
	newCase("limit-unsupported", noLimits, limitUnsupported),
	newCase("writer-not-starved", ordered, writerNotStarved),
}

// shared: shared holders hold together, also two of the same client, and exclude exclusive ones. An
// exclusive holder excludes them.
//
// It fails an engine that grants to a writer beside readers, or ends all readers' locks when one is
// released.
func shared(t *run) {
	cs := t.clients(3)
	readers := []*held{
		t.hold(cs[0], t.shared("read")), t.hold(cs[0], t.shared("read")), t.hold(cs[1], t.shared("read")),
	}
	for _, c := range cs {
		t.refused(c, t.request("read"), "that shared holders have")
	}
	writer := t.queue(cs[2], t.request("read"))
	for _, r := range readers {
		writer.pending("while a shared holder was in")
		r.stands("beside others")
		r.free()
	}
	h := writer.granted(t.patience, "an exclusive waiter after the last shared holder")
	t.refused(cs[0], t.shared("read"), "that an exclusive holder has")
	w := t.queue(cs[0], t.shared("read"))
	w.pending("while an exclusive holder was in")
	h.free()
	w.granted(t.patience, "a shared waiter after an exclusive holder").free()
}

// limit: exactly as many shared holders as the limit allows hold together. Meanwhile a request with
// another limit is refused.
//
// It fails an engine that counts waiters, or accepts requests with different limits.
func limit(t *run) {
	cs := t.clients(3)
	req := t.shared("seats")
	req.Limit = 3
	var in []*held
	for i := range req.Limit {
		in = append(in, t.hold(cs[i%2], req))
	}
	t.refused(cs[2], req, "whose limit is reached")
	w := t.queue(cs[2], req)
	w.pending("while the limit was reached")
	in[1].free()
	in[1] = w.granted(t.patience, "a waiter for a free seat")
	t.refused(cs[0], req, "whose limit is reached again")
	other := req
	other.Limit = 4
	if _, err := t.attempt(cs[0], other); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a limit of %d while %d is in force: got %v, want ErrInvalid", other.Limit, req.Limit, err)
	}
	for _, h := range in {
		h.stands("within the limit")
		h.free()
	}
	h := t.take(t.patience, cs[0], other)
	h.free()
}

// limitUnsupported: an engine without limits returns ErrUnsupported for a request with a limit and
// for Resize, and nothing is held.
//
// It fails an engine that ignores a limit that it cannot enforce.
func limitUnsupported(t *run) {
	c := t.client()
	req := t.shared("seats")
	req.Limit = 2
	if _, err := t.attempt(c, req); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a limit: got %v, want ErrUnsupported", err)
	}
	if _, ok := as[driver.Resizer](c); ok {
		err := resizes{t, nil}.try(c, "seats", 2)
		if !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("a new limit: got %v, want ErrUnsupported", err)
		}
	}
	t.hold(c, t.request("seats")).free()
}

// writerNotStarved: a shared request that arrives after an exclusive waiter is granted after it.
//
// It fails an engine that admits readers as long as there are other readers.
func writerNotStarved(t *run) {
	cs := t.clients(3)
	reader := t.hold(cs[0], t.shared("read"))
	writer := t.queue(cs[1], t.request("read"))
	t.refused(cs[2], t.shared("read"), "that an exclusive waiter waits for")
	late := t.queue(cs[2], t.shared("read"))
	late.pending("behind an exclusive waiter")
	reader.free()
	line{writer, late}.inOrder()
}
