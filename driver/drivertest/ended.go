package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// endedCases are about contexts that have ended.
var endedCases = []Case{
	newCase("ended-context", anyEngine, endedContext),
}

// endedContext: a context that has ended before the request is its own error, for
// a name that is free and for one that is held, and nothing is taken. The engine is
// not even asked: the answer is the same when it is silent.
//
// It fails an engine that looks at the context after it has asked, or wraps the error of
// the context into one of its own.
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

// itsOwn fails the case unless err is that of a context which ended before the
// request, and nothing else.
func itsOwn(ctx context.Context, t *run, err error, name string) {
	t.Helper()
	if !errors.Is(err, ctx.Err()) || errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("acquiring %q with a context that has ended: got %v, want %v and nothing else", name, err, ctx.Err())
	}
}
