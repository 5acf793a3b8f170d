package otelfencelock

import (
	"context"
	"encoding/hex"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/observe/lockmetrics"
)

// The attributes that both spans of a lock have, and some of their events.
const (
	nameKey  = attribute.Key("fencelock.name")
	engineOf = attribute.Key("fencelock.engine")
	modeOf   = attribute.Key("fencelock.mode")
	kindOf   = attribute.Key("fencelock.kind")
	tokenKey = attribute.Key("fencelock.token")
)

// acquiring is the context of an acquisition.
type acquiring struct {
	context.Context
	span trace.Span
	root bool // span has no parent
}

// acquiringKey is the context key of an acquiring.
type acquiringKey struct{}

// Value implements context.Context.
func (a *acquiring) Value(key any) any {
	if key == (acquiringKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// startAcquire starts the span of an acquisition. The engine stores its traceparent with the lock.
func (r *reporter) startAcquire(ctx context.Context, d fencelock.TraceAcquireStart) context.Context {
	root := !trace.SpanContextFromContext(ctx).IsValid()
	ctx, span := r.tracer.Start(ctx, "fencelock.acquire")
	if span.IsRecording() {
		span.SetAttributes(nameKey.String(d.Name), engineOf.String(d.Engine), modeOf.String(d.Mode.String()), kindOf.String(d.Kind))
	}
	if sc := span.SpanContext(); sc.IsValid() {
		ctx = fencelock.WithTrace(ctx, traceparent(sc))
	}
	return &acquiring{ctx, span, root}
}

// endAcquire ends the span of an acquisition. The answer "held" is no error.
func (r *reporter) endAcquire(a *acquiring, d fencelock.TraceAcquireEnd, failure string) {
	defer a.span.End()
	if d.Held != nil && d.Held.Trace != "" {
		link(a.span, d.Held)
	}
	if d.Queued > 0 {
		a.span.SetAttributes(attribute.Float64("fencelock.queued", d.Queued.Seconds()), attribute.Int("fencelock.position", d.Position))
	}
	if failure == "" {
		if a.root {
			r.roots.Store(d.TraceLock, a.span.SpanContext())
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

// startHold starts the span of a hold: below the caller's span or, if there is none, below that of
// the acquisition, so that both are in the trace that waiters link to.
func (r *reporter) startHold(ctx context.Context, d fencelock.TraceLock) (context.Context, trace.Span) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		if root, ok := r.roots.LoadAndDelete(d); ok {
			ctx = trace.ContextWithSpanContext(ctx, root.(trace.SpanContext))
		}
	}
	ctx, span := r.tracer.Start(ctx, "fencelock.hold")
	if span.IsRecording() {
		span.SetAttributes(nameKey.String(d.Name), engineOf.String(d.Engine), modeOf.String(d.Mode.String()), kindOf.String(d.Kind), tokenKey.Int64(d.Token))
	}
	return ctx, span
}

// endHold ends the span of a hold.
func endHold(span trace.Span, d fencelock.TraceHoldEnd) {
	if d.Max != nil {
		span.SetAttributes(endKey.String(lockmetrics.HoldEnd(d)))
	}
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
