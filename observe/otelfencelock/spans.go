package otelfencelock

import (
	"context"
	"encoding/hex"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/observe/lockmetrics"
)

// The attributes that both spans of a lock have, and some of their events, and why they failed.
const (
	nameKey  = attribute.Key("fencelock.name")
	engineOf = attribute.Key("fencelock.engine")
	modeOf   = attribute.Key("fencelock.mode")
	kindOf   = attribute.Key("fencelock.kind")
	tokenKey = attribute.Key("fencelock.token")
	errorKey = attribute.Key("error.type")
)

// reportRefusals makes a write that a guard refuses an event of the current span.
func reportRefusals(tracer *fencelock.Tracer) {
	count := tracer.Stale
	tracer.Stale = func(ctx context.Context, d fencelock.TraceStale) {
		count(ctx, d)
		trace.SpanFromContext(ctx).AddEvent("fencelock.fence.refused", trace.WithAttributes(
			attribute.String("fencelock.resource", d.Resource), nameKey.String(d.Name), tokenKey.Int64(d.Token), attribute.Int64("fencelock.floor", d.Floor)))
	}
}

// spans reports the spans of locks.
type spans struct {
	tracer  trace.Tracer
	metrics fencelock.Tracer
	roots   sync.Map // the span contexts of acquisitions without a parent, by fencelock.TraceLock, until their holds begin
}

// addSpans adds spans to a tracer that has metrics.
func addSpans(tracer *fencelock.Tracer, of trace.Tracer) {
	s := &spans{tracer: of, metrics: *tracer}
	tracer.AcquireStart = s.startAcquire
	tracer.AcquireEnd = s.endAcquire
	tracer.HoldStart = s.startHold
	tracer.HoldEnd = s.endHold
}

// acquiring is the context of an acquisition.
type acquiring struct {
	context.Context
	by   *spans
	span trace.Span
	root bool // span has no parent
}

// acquiringKey is the context key of an acquiring. Two tracers may follow the same acquisition.
type acquiringKey struct{ by *spans }

// Value implements context.Context.
func (a *acquiring) Value(key any) any {
	if key == (acquiringKey{a.by}) {
		return a
	}
	return a.Context.Value(key)
}

// startAcquire starts the span of an acquisition. The engine stores its traceparent with the lock.
func (s *spans) startAcquire(ctx context.Context, d fencelock.TraceAcquireStart) context.Context {
	root := !trace.SpanContextFromContext(ctx).IsValid()
	ctx, span := s.tracer.Start(ctx, "fencelock.acquire")
	if span.IsRecording() {
		span.SetAttributes(nameKey.String(d.Name), engineOf.String(d.Engine), modeOf.String(d.Mode.String()), kindOf.String(d.Kind))
	}
	if sc := span.SpanContext(); sc.IsValid() {
		ctx = fencelock.WithTrace(ctx, traceparent(sc))
	}
	return &acquiring{ctx, s, span, root}
}

// endAcquire ends the span of an acquisition. The answer "held" is no error.
func (s *spans) endAcquire(ctx context.Context, d fencelock.TraceAcquireEnd) {
	s.metrics.AcquireEnd(ctx, d)
	a, ok := ctx.Value(acquiringKey{s}).(*acquiring)
	if !ok {
		return
	}
	defer a.span.End()
	if d.Held != nil && d.Held.Trace != "" {
		link(a.span, d.Held)
	}
	if d.Queued > 0 {
		a.span.SetAttributes(attribute.Float64("fencelock.queued", d.Queued.Seconds()), attribute.Int("fencelock.position", d.Position))
	}
	failure := lockmetrics.Failure(d.Err)
	if failure == "" {
		if a.root {
			s.roots.Store(d.TraceLock, a.span.SpanContext())
		}
		return
	}
	a.span.SetAttributes(errorKey.String(failure))
	if failure != "held" && failure != "timeout" && failure != "canceled" {
		a.span.SetStatus(codes.Error, d.Err.Error())
	}
}

// link adds a link to the trace of the holder that was in the way.
func link(span trace.Span, held *fencelock.HeldError) {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": held.Trace})
	span.AddLink(trace.Link{
		SpanContext: trace.SpanContextFromContext(ctx),
		Attributes:  []attribute.KeyValue{attribute.String("fencelock.holder.host", held.Host), attribute.Int("fencelock.holder.pid", held.PID)},
	})
}

// holding is the context of a hold.
type holding struct {
	context.Context
	by   *spans
	span trace.Span
}

// holdingKey is the context key of a holding.
type holdingKey struct{ by *spans }

// Value implements context.Context.
func (h *holding) Value(key any) any {
	if key == (holdingKey{h.by}) {
		return h
	}
	return h.Context.Value(key)
}

// startHold starts the span of a hold: below the caller's span or, if there is none, below that of
// the acquisition, so that both are in the trace that waiters link to.
func (s *spans) startHold(ctx context.Context, d fencelock.TraceLock) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		if root, ok := s.roots.LoadAndDelete(d); ok {
			ctx = trace.ContextWithSpanContext(ctx, root.(trace.SpanContext))
		}
	}
	ctx, span := s.tracer.Start(ctx, "fencelock.hold")
	if span.IsRecording() {
		span.SetAttributes(nameKey.String(d.Name), engineOf.String(d.Engine), modeOf.String(d.Mode.String()), kindOf.String(d.Kind), tokenKey.Int64(d.Token))
	}
	return &holding{s.metrics.HoldStart(ctx, d), s, span}
}

// endHold ends the span of a hold.
func (s *spans) endHold(ctx context.Context, d fencelock.TraceHoldEnd) {
	s.metrics.HoldEnd(ctx, d)
	h, ok := ctx.Value(holdingKey{s}).(*holding)
	if !ok {
		return
	}
	if d.Max != nil {
		h.span.SetAttributes(attribute.String("hold.end", "max_hold"))
	}
	if d.Lost != nil {
		h.span.SetAttributes(errorKey.String(lockmetrics.Loss(d.Lost)))
		h.span.SetStatus(codes.Error, d.Lost.Error())
	}
	h.span.End()
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
