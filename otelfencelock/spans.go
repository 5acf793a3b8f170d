package otelfencelock

import (
	"context"
	"encoding/hex"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/lockmetrics"
)

// The attributes of spans, and of their events and links.
const (
	nameKey     = attribute.Key("fencelock.name")
	tokenKey    = attribute.Key("fencelock.token")
	waitedKey   = attribute.Key("fencelock.queued") // seconds
	positionKey = attribute.Key("fencelock.position")
	resourceKey = attribute.Key("fencelock.resource")
	floorKey    = attribute.Key("fencelock.floor")
	hostKey     = attribute.Key("fencelock.holder.host")
	pidKey      = attribute.Key("fencelock.holder.pid")
)

// spans remembers the spans of acquisitions that had no parent until their holds begin.
type spans struct{ roots sync.Map } // from fencelock.TraceLock to trace.SpanContext

// attributes returns the attributes that both spans of a lock have, and more.
func attributes(engine, mode, kind, name string, more ...attribute.KeyValue) trace.SpanStartOption {
	return trace.WithAttributes(append(more, nameKey.String(name), attribute.String("fencelock.engine", engine),
		attribute.String("fencelock.mode", mode), attribute.String("fencelock.kind", kind))...)
}

// startAcquire starts the span of an acquisition. The engine stores its traceparent with the lock.
func (r *reporter) startAcquire(a *acquiring, d fencelock.TraceAcquireStart) {
	a.root = !trace.SpanContextFromContext(a.Context).IsValid()
	a.Context, a.span = r.tracer.Start(a.Context, "fencelock.acquire", attributes(d.Engine, d.Mode.String(), d.Kind, d.Name))
	if sc := a.span.SpanContext(); sc.IsValid() {
		a.Context = fencelock.WithTrace(a.Context, traceparent(sc))
	}
}

// link adds a link to the trace of the holder that is in the way.
func (a *acquiring) link(held *fencelock.HeldError) {
	if held == nil || held.Trace == "" || held.Trace == a.linked {
		return
	}
	a.linked = held.Trace
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": held.Trace})
	a.span.AddLink(trace.Link{
		SpanContext: trace.SpanContextFromContext(ctx),
		Attributes:  []attribute.KeyValue{hostKey.String(held.Host), pidKey.Int(held.PID)},
	})
}

// endAcquire ends the span of an acquisition. The answer "held" is no error.
func (s *spans) endAcquire(a *acquiring, d fencelock.TraceAcquireEnd, failure string) {
	a.link(d.Held)
	if d.Queued > 0 {
		a.span.SetAttributes(waitedKey.Float64(d.Queued.Seconds()))
	}
	if failure == "" && a.root {
		s.roots.Store(d.TraceLock, a.span.SpanContext())
	}
	if failure != "" {
		a.span.SetAttributes(errorKey.String(failure))
		if !errors.Is(d.Err, fencelock.ErrHeld) && !errors.Is(d.Err, context.Canceled) {
			a.span.SetStatus(codes.Error, d.Err.Error())
		}
	}
	a.span.End()
}

// startHold starts the span of a hold: below the caller's span or, if there is none, below that of
// the acquisition, so that both are in the trace that waiters link to.
func (r *reporter) startHold(h *holding, d fencelock.TraceLock) {
	ctx := h.Context
	if root, ok := r.spans.roots.LoadAndDelete(d); ok {
		ctx = trace.ContextWithSpanContext(ctx, root.(trace.SpanContext))
	}
	h.Context, h.span = r.tracer.Start(ctx, "fencelock.hold", attributes(d.Engine, d.Mode.String(), d.Kind, d.Name, tokenKey.Int64(d.Token)))
}

// endHold ends the span of a hold.
func endHold(span trace.Span, d fencelock.TraceHoldEnd) {
	if d.Lost != nil {
		span.SetAttributes(errorKey.String(lockmetrics.Loss(d.Lost)))
		span.SetStatus(codes.Error, d.Lost.Error())
	}
	span.End()
}

// traceparent returns sc in the form of W3C Trace Context.
func traceparent(sc trace.SpanContext) string {
	id, span := sc.TraceID(), sc.SpanID()
	b := make([]byte, 0, 55)
	b = hex.AppendEncode(append(b, "00-"...), id[:])
	b = hex.AppendEncode(append(b, '-'), span[:])
	b = hex.AppendEncode(append(b, '-'), []byte{byte(sc.TraceFlags() & trace.FlagsSampled)})
	return string(b)
}
