//go:build unix

package otelfencelock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/testkit/engines"
)

// The span of a waiter links to the trace of the holder in another process, on the engines that
// ship.
func TestWaiterLinksToHolder(t *testing.T) {
	for name, start := range engines.All(time.Minute) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connect := start(t)
			holder, waiter := newProcess(connect()), newProcess(connect())
			ctx, root := holder.tracer.Start(t.Context(), "request")
			// A wait whose first attempt a busy machine did not answer knows no holder.
			n := 0
			for known := false; !known && n < 10; n++ {
				known = waitForHolder(t, ctx, holder, waiter, fmt.Sprint("invoice:", n))
			}
			root.End()
			held, waited := holder.span(t, "fencelock.acquire", n-1), waiter.span(t, "fencelock.acquire", n-1)
			links := waited.Links()
			if len(links) != 1 || links[0].SpanContext.SpanID() != held.SpanContext().SpanID() || links[0].SpanContext.TraceID() != root.SpanContext().TraceID() {
				t.Fatalf("the span of the waiter has the links %+v, want one to %v", links, held.SpanContext())
			}
			if waited.SpanContext().TraceID() == held.SpanContext().TraceID() {
				t.Error("the waiter is in the trace of the holder")
			}
			if attr(waited, "fencelock.queued") == "" {
				t.Errorf("the span does not say how long it waited: %v", waited.Attributes())
			}
		})
	}
}

// waitForHolder hands a lock from one process to the other, and reports whether the waiter knew the
// holder when it joined the queue.
func waitForHolder(t *testing.T, ctx context.Context, holder, waiter *process, name string) bool {
	t.Helper()
	lock, err := holder.locks.Acquire(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	queued := make(chan fencelock.WaitInfo, 1)
	locks := waiter.locks.With(fencelock.Options{OnWait: func(info fencelock.WaitInfo) { queued <- info }})
	done := make(chan error, 1)
	go func() { // ends when the holder has released
		next, err := locks.Acquire(t.Context(), name)
		if err == nil {
			err = next.Release()
		}
		done <- err
	}()
	info := <-queued
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return info.Held != nil
}
