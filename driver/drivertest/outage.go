package drivertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// outageCases are about an engine that does not answer.
var outageCases = []Case{
	newCase("unreachable", anyEngine, unreachable),
	newCase("outage", anyEngine, outage),
}

// unreachable: while the engine does not answer, requests return ErrUnavailable, never ErrHeld,
// whether the name is held or free. Once it answers again, a wait for a held name that times out is
// ErrHeld.
//
// It fails an engine that reports a name as held because there is no answer: a job that is skipped
// when the name is held would be skipped for ever.
func unreachable(t *run) {
	t.needsCutter()
	cs := t.clients(2)
	t.hold(cs[0], t.request("held"))
	t.refused(cs[1], t.shortLease("held"), "before the engine is silent")
	t.silence()
	var asked sync.WaitGroup
	for _, name := range []string{"free", "held"} {
		for _, wait := range []bool{false, true} {
			req := t.shortLease(name)
			req.Wait = wait
			asked.Go(func() { unanswered(t, cs[1], req) }) // ends with its context
		}
	}
	asked.Wait()
	t.mend()
	t.eventually(t.patience, "the engine says again that the name is held", func() bool {
		_, err := t.attempt(cs[1], t.shortLease("held"))
		return errors.Is(err, driver.ErrHeld)
	})
	t.outOfTime(cs[1], t.shortLease("held"), "a wait that ran out of time on an engine that answers again")
	t.take(t.patience, cs[1], t.shortLease("free")).free()
}

// unanswered makes a request to an unresponsive engine. Any goroutine may call it.
func unanswered(t *run, c Client, req driver.Request) {
	err := forAWhile(t.ctx, t.patience, func(ctx context.Context) error { _, err := t.ask(ctx, c, req); return err })
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrHeld) {
		t.Errorf("asking a silent engine for %q (wait: %v): got %v, want ErrUnavailable and not ErrHeld", req.Name, req.Wait, err)
	}
	if req.Wait && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for %q with a silent engine: got %v, want also DeadlineExceeded", req.Name, err)
	}
}

// forAWhile calls an unresponsive engine with a context that ends. If the context ended before the
// call began, which says nothing about the engine, it retries with a longer one. Any goroutine may
// call it.
func forAWhile(ctx context.Context, patience time.Duration, call func(context.Context) error) error {
	for limit := patience / 20; ; limit *= 2 {
		limited, cancel := context.WithTimeout(ctx, limit)
		err := call(limited)
		own := errors.Is(err, limited.Err()) && !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrHeld)
		cancel()
		if !own || limit > patience/4 {
			return err
		}
	}
}

// outage: a waiter continues to wait when the engine does not answer for longer than a lease, both
// while the name is held and during the hand-over, when a grant may have arrived that cannot be
// confirmed.
//
// It fails an engine that returns at the first error, or uses a grant that it could not confirm.
func outage(t *run) {
	t.needsCutter()
	cs := t.clients(2)
	for _, handedOver := range []bool{false, true} {
		h := t.hold(cs[0], t.shortLease("waited-for"))
		w, ok := t.queueBehind(h, cs[1], t.shortLease("waited-for"))
		if !ok {
			return
		}
		if handedOver {
			h.free()
		}
		t.silence()
		time.Sleep(t.ttl + t.ttl/2)
		if w.answered() && w.err != nil {
			t.Fatalf("a waiter gave up in an outage: %v", w.err)
		}
		t.mend()
		if !handedOver && !t.traits.Leased {
			h.free()
		}
		got := w.granted(2*t.ttl+t.patience, "a waiter that saw an outage")
		_ = got.release() // it may have expired, as nobody has renewed it
		t.take(t.patience, cs[0], t.shortLease("waited-for")).free()
	}
}
