//go:build unix

package otelfencelock_test

import (
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
			lock, err := holder.locks.Acquire(ctx, "invoice:1")
			if err != nil {
				t.Fatal(err)
			}
			root.End()
			queued := make(chan struct{})
			locks := waiter.locks.With(fencelock.Options{OnWait: func(fencelock.WaitInfo) { close(queued) }})
			done := make(chan error, 1)
			go func() { // ends when the holder has released
				next, err := locks.Acquire(t.Context(), "invoice:1")
				if err == nil {
					err = next.Release()
				}
				done <- err
			}()
			<-queued
			if err := lock.Release(); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			held, waited := holder.span(t, "fencelock.acquire", 0), waiter.span(t, "fencelock.acquire", 0)
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
