package otelfencelock

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/observe/lockmetrics"
)

const scope = "github.com/fencelock/fencelock/observe/otelfencelock" // of the instrumentation

// Option is a setting of NewTracer.
type Option func(*config)

type config struct {
	meters  metric.MeterProvider
	tracers trace.TracerProvider // nil without spans
	class   func(name string) string
}

// WithMeterProvider sets where metrics go. The default is the global provider.
func WithMeterProvider(p metric.MeterProvider) Option { return func(c *config) { c.meters = p } }

// WithTracerProvider sets where spans go. The default is the global provider.
func WithTracerProvider(p trace.TracerProvider) Option { return func(c *config) { c.tracers = p } }

// WithoutSpans turns spans off, and with them the traceparents that are stored with locks.
func WithoutSpans() Option { return func(c *config) { c.tracers = nil } }

// WithClass sets the function that returns the class of the name of a lock, an election, a job or a
// limiter. The package comment describes the default. The limit of 20 classes applies to both.
func WithClass(class func(name string) string) Option { return func(c *config) { c.class = class } }

// NewTracer returns a tracer that reports to OpenTelemetry. It does no I/O. An error of the meter
// provider goes to the error handler of OpenTelemetry.
func NewTracer(opts ...Option) *fencelock.Tracer {
	c := config{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider()}
	for _, o := range opts {
		o(&c)
	}
	r := &reporter{metrics: newMetrics(c.meters.Meter(scope), c.class)}
	tracer := &fencelock.Tracer{
		AcquireWait: r.acquireWait,
		AcquireEnd:  r.acquireEnd,
		HoldStart:   r.holdStart,
		HoldEnd:     r.holdEnd,
		RenewEnd:    r.renewEnd,
		ReleaseEnd:  r.releaseEnd,
		Stale:       r.stale,
		TickEnd:     r.tickEnd,
		OnceEnd:     r.onceEnd,
		RateEnd:     r.rateEnd,
	}
	if c.tracers != nil {
		r.tracer = c.tracers.Tracer(scope)
		tracer.AcquireStart = r.startAcquire
	}
	return tracer
}

// reporter reports locks, with metrics and spans.
type reporter struct {
	*metrics
	tracer trace.Tracer // nil without spans
	roots  sync.Map     // the span contexts of acquisitions without a parent, by fencelock.TraceLock, until their holds begin
}

// of returns the series of a lock.
func (r *reporter) of(d fencelock.TraceLock) *lockSeries {
	return r.locks.Of(d.Engine, d.Mode.String(), d.Kind, d.Name)
}

func (r *reporter) acquireWait(_ context.Context, d fencelock.TraceAcquireWait) {
	r.of(fencelock.TraceLock{Name: d.Name, Mode: d.Mode, Kind: d.Kind, Engine: d.Engine}).waiting.Add(1)
}

func (r *reporter) acquireEnd(ctx context.Context, d fencelock.TraceAcquireEnd) {
	s, failure := r.of(d.TraceLock), lockmetrics.Failure(d.Err)
	switch {
	case failure != "":
		r.failures.Add(ctx, 1, s.failures[failure]...)
	case d.Queued > 0:
		r.acquire.Record(ctx, d.Waited.Seconds(), s.contended...)
	default:
		r.acquire.Record(ctx, d.Waited.Seconds(), s.free...)
	}
	if d.Queued > 0 {
		s.waiting.Add(-1)
	}
	if a, ok := ctx.Value(acquiringKey{}).(*acquiring); ok {
		r.endAcquire(a, d, failure)
	}
}

func (r *reporter) holdStart(ctx context.Context, d fencelock.TraceLock) context.Context {
	s := r.of(d)
	if d.Kind == fencelock.KindElection {
		r.terms.Add(ctx, 1, s.add...)
	}
	if r.tracer == nil {
		return lockmetrics.Begin(ctx, d, s, &s.holds)
	}
	ctx, span := r.startHold(ctx, d)
	h := lockmetrics.Begin(ctx, d, s, &s.holds)
	h.Span = span
	return h
}

func (r *reporter) holdEnd(ctx context.Context, d fencelock.TraceHoldEnd) {
	h := lockmetrics.HeldFrom[lockSeries](ctx, d.TraceLock)
	if h == nil {
		return
	}
	h.End()
	r.hold.Record(ctx, d.Held.Seconds(), h.Series.ends[lockmetrics.HoldEnd(d)]...)
	if d.Lost != nil {
		r.losses.Add(ctx, 1, h.Series.losses[lockmetrics.Loss(d.Lost)]...)
	}
	if span, ok := h.Span.(trace.Span); ok {
		endHold(span, d)
	}
}

func (r *reporter) releaseEnd(ctx context.Context, d fencelock.TraceReleaseEnd) {
	var s *lockSeries
	if h := lockmetrics.HeldFrom[lockSeries](ctx, d.TraceLock); h != nil {
		s = h.Series
	} else { // a grant that was not used
		s = r.of(d.TraceLock)
	}
	r.release.Record(ctx, d.Took.Seconds(), s.releases[lockmetrics.Failure(d.Err)]...)
}

func (r *reporter) stale(ctx context.Context, d fencelock.TraceStale) {
	s := r.of(fencelock.TraceLock{Name: d.Name, Mode: d.Mode, Kind: d.Kind, Engine: d.Engine})
	r.refusals.Add(ctx, 1, s.add...)
	trace.SpanFromContext(ctx).AddEvent("fencelock.fence.refused", trace.WithAttributes(
		attribute.String("fencelock.resource", d.Resource), nameKey.String(d.Name), tokenKey.Int64(d.Token), attribute.Int64("fencelock.floor", d.Floor)))
}
