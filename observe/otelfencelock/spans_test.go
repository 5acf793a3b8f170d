package otelfencelock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/observe/otelfencelock"
)

// process is a process with spans of its own.
type process struct {
	locks  *fencelock.Locker
	spans  *tracetest.SpanRecorder
	tracer trace.Tracer
}

func newProcess(engine fencelock.Engine) *process {
	p := &process{spans: tracetest.NewSpanRecorder()}
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(p.spans))
	tracer := otelfencelock.NewTracer(otelfencelock.WithTracerProvider(provider))
	p.locks = fencelock.New(engine, &fencelock.Config{Tracer: tracer}).With(fencelock.Options{TTL: time.Minute})
	p.tracer = provider.Tracer("test")
	return p
}

// span returns the n-th ended span with that name, from 0.
func (p *process) span(t *testing.T, name string, n int) sdk.ReadOnlySpan {
	t.Helper()
	var names []string
	for _, s := range p.spans.Ended() {
		if s.Name() != name {
			names = append(names, s.Name())
			continue
		}
		if n--; n < 0 {
			return s
		}
	}
	t.Fatalf("no more span %q; there are %q", name, names)
	return nil
}

// attr returns an attribute of a span as text.
func attr(s sdk.ReadOnlySpan, key string) string {
	for _, a := range s.Attributes() {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

// The two spans of a lock are below the caller's span, and the work is below that of the hold. Without
// a caller's span, both are in one trace.
func TestSpansOfALock(t *testing.T) {
	for _, c := range []struct {
		what   string
		parent bool
	}{{"with a parent", true}, {"without", false}} {
		t.Run(c.what, func(t *testing.T) {
			p := newProcess(memlock.New(nil))
			ctx, end := t.Context(), func() {}
			var parent trace.SpanContext
			if c.parent {
				var span trace.Span
				ctx, span = p.tracer.Start(ctx, "parent")
				parent, end = span.SpanContext(), func() { span.End() }
			}
			var token int64
			err := p.locks.Do(ctx, "invoice:1", func(ctx context.Context) error {
				_, work := p.tracer.Start(ctx, "work")
				work.End()
				token, _ = fencelock.TokenFrom(ctx)
				return nil
			})
			end()
			if err != nil {
				t.Fatal(err)
			}
			acquire, hold, work := p.span(t, "fencelock.acquire", 0), p.span(t, "fencelock.hold", 0), p.span(t, "work", 0)
			if work.Parent().SpanID() != hold.SpanContext().SpanID() {
				t.Error("the work is not below the hold")
			}
			switch {
			case c.parent && (acquire.Parent().SpanID() != parent.SpanID() || hold.Parent().SpanID() != parent.SpanID()):
				t.Error("the spans are not below that of the caller")
			case acquire.SpanContext().TraceID() != hold.SpanContext().TraceID():
				t.Error("the spans are in two traces")
			}
			if token == 0 || attr(hold, "fencelock.token") != fmt.Sprint(token) || attr(hold, "fencelock.name") != "invoice:1" || attr(acquire, "fencelock.engine") != "memory" {
				t.Errorf("attributes %v and %v", acquire.Attributes(), hold.Attributes())
			}
		})
	}
}

// A refused acquisition says why, and one that is only held is no error. A loss is one.
func TestFailedSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := memlock.New(nil)
		p := newProcess(engine)
		lock, err := p.locks.Acquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = p.locks.TryAcquire(t.Context(), "a")
		f, err := fence.From(lock.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Refuse(lock.Context(), "row", 0)
		engine.Lose("a")
		<-lock.Context().Done()
		_ = lock.Release()
		engine.Refuse(errors.New("down"))
		_, _ = p.locks.TryAcquire(t.Context(), "a")
		engine.Refuse(nil)
		synctest.Wait()
		held, down, lost := p.span(t, "fencelock.acquire", 1), p.span(t, "fencelock.acquire", 2), p.span(t, "fencelock.hold", 0)
		if attr(held, "error.type") != "held" || held.Status().Code != codes.Unset || len(held.Links()) != 1 {
			t.Errorf("held: %v, %v, %d links", held.Attributes(), held.Status(), len(held.Links()))
		}
		if events := lost.Events(); len(events) == 0 || events[0].Name != "fencelock.fence.refused" {
			t.Errorf("the hold has the events %v, want the refused write", events)
		}
		if attr(down, "error.type") != "unavailable" || down.Status().Code != codes.Error {
			t.Errorf("unreachable: %v, %v", down.Attributes(), down.Status())
		}
		if attr(lost, "error.type") != "gone" || lost.Status().Code != codes.Error || !strings.Contains(lost.Status().Description, "was lost") {
			t.Errorf("lost: %v, %v", lost.Attributes(), lost.Status())
		}
	})
}
