package otelfencelock

import (
	"context"
	"encoding/hex"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/lockmetrics"
)

// The attributes of spans, and of their events and links.
const (
	nameKey       = attribute.Key("fencelock.name")
	lockEngineKey = attribute.Key("fencelock.engine")
	lockModeKey   = attribute.Key("fencelock.mode")
	lockKindKey   = attribute.Key("fencelock.kind")
	tokenKey      = attribute.Key("fencelock.token")
	queuedKey     = attribute.Key("fencelock.queued") // seconds
	positionKey   = attribute.Key("fencelock.position")
	resourceKey   = attribute.Key("fencelock.resource")
	floorKey      = attribute.Key("fencelock.floor")
	hostKey       = attribute.Key("fencelock.holder.host")
	pidKey        = attribute.Key("fencelock.holder.pid")
)

// rootKey is the context key of an acquisition whose span has no parent.
type rootKey struct{}

// startAcquire starts the span of an acquisition. The engine stores its traceparent with the lock.
func (r *reporter) startAcquire(ctx context.Context, d fencelock.TraceAcquireStart) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = context.WithValue(ctx, rootKey{}, true)
	}
	ctx, span := r.tracer.Start(ctx, "fencelock.acquire")
	if span.IsRecording() {
		span.SetAttributes(nameKey.String(d.Name), lockEngineKey.String(d.Engine), lockModeKey.String(d.Mode.String()), lockKindKey.String(d.Kind))
	}
	if sc := span.SpanContext(); sc.IsValid() {
		ctx = fencelock.WithTrace(ctx, traceparent(sc))
	}
	return ctx
}

// endAcquire ends the span of an acquisition. The answer "held" is no error.
func (r *reporter) endAcquire(ctx context.Context, d fencelock.TraceAcquireEnd, failure string) {
	span := trace.SpanFromContext(ctx)
	defer span.End()
	if d.Held != nil && d.Held.Trace != "" {
		link(span, d.Held)
	}
	if d.Queued > 0 {
		span.SetAttributes(queuedKey.Float64(d.Queued.Seconds()), positionKey.Int(d.Position))
	}
	if failure == "" {
		if ctx.Value(rootKey{}) != nil {
			r.roots.Store(d.TraceLock, span.SpanContext())
		}
		return
	}
	span.SetAttributes(errorKey.String(failure))
	if failure != "held" && failure != "timeout" && failure != "canceled" {
		span.SetStatus(codes.Error, d.Err.Error())
	}
}

// link adds a link to the trace of the holder that was in the way.
func link(span trace.Span, held *fencelock.HeldError) {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": held.Trace})
	span.AddLink(trace.Link{
		SpanContext: trace.SpanContextFromContext(ctx),
		Attributes:  []attribute.KeyValue{hostKey.String(held.Host), pidKey.Int(held.PID)},
	})
}

// startHold starts the span of a hold: below the caller's span or, if there is none, below that of
// the acquisition, so that both are in the trace that waiters link to.
func (r *reporter) startHold(ctx context.Context, d fencelock.TraceLock) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		if root, ok := r.roots.LoadAndDelete(d); ok {
			ctx = trace.ContextWithSpanContext(ctx, root.(trace.SpanContext))
		}
	}
	ctx, span := r.tracer.Start(ctx, "fencelock.hold")
	if span.IsRecording() {
		span.SetAttributes(nameKey.String(d.Name), lockEngineKey.String(d.Engine), lockModeKey.String(d.Mode.String()), lockKindKey.String(d.Kind), tokenKey.Int64(d.Token))
	}
	return ctx
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
