package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// endedCases are about contexts that have ended already.
var endedCases = []Case{
	newCase("ended-context", anyEngine, endedContext),
}

// endedContext: a request with a context that has already ended returns the context's error,
// whether the name is free or held, and acquires nothing. The engine is not contacted: the result
// is the same while it is unresponsive.
//
// It fails an engine that checks the context after contacting the server, or wraps the context's
// error in another sentinel.
func endedContext(t *run) {
	cs := t.clients(2)
	h := t.hold(cs[0], t.request("held"))
	endedContexts(t, cs[1])
	if t.silence() {
		endedContexts(t, cs[1])
		t.mend()
	}
	t.take(t.patience, cs[0], t.request("free")).free()
	h.free()
	t.take(t.patience, cs[0], t.request("held")).free()
}

func endedContexts(t *run, c Client) {
	t.Helper()
	cancelled, cancel := context.WithCancel(t.ctx)
	cancel()
	late, cancel := context.WithDeadline(t.ctx, time.Now().Add(-time.Second))
	defer cancel()
	for _, ctx := range []context.Context{cancelled, late} {
		for _, name := range []string{"free", "held"} {
			req := t.request(name)
			for _, req.Wait = range []bool{false, true} {
				err := within(t, "Acquire", func(context.Context) error { _, err := c.Acquire(ctx, req); return err })
				itsOwn(ctx, t, err, name)
			}
		}
	}
}

// itsOwn fails the case unless err is the error of ctx and no other sentinel.
func itsOwn(ctx context.Context, t *run, err error, name string) {
	t.Helper()
	if !errors.Is(err, ctx.Err()) || errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("acquiring %q with a context that has ended: got %v, want %v and nothing else", name, err, ctx.Err())
	}
}
