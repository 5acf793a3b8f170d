package otelfencelock

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/lockmetrics"
)

// scope is the name of the instrumentation scope.
const scope = "github.com/fencelock/fencelock/otelfencelock"

// Option is a setting of NewTracer.
type Option func(*config)

type config struct {
	meters  metric.MeterProvider
	tracers trace.TracerProvider
	class   func(name string) string
	spans   bool
}

// WithMeterProvider sets where metrics go. The default is the global provider.
func WithMeterProvider(p metric.MeterProvider) Option { return func(c *config) { c.meters = p } }

// WithTracerProvider sets where spans go. The default is the global provider.
func WithTracerProvider(p trace.TracerProvider) Option { return func(c *config) { c.tracers = p } }

// WithoutSpans turns spans off, and with them the traceparents that are stored with locks.
func WithoutSpans() Option { return func(c *config) { c.spans = false } }

// WithClass sets the function that returns the class of the name of a lock, an election, a job or a
// limiter. The default is described in the package comment. The limit of 20 classes applies to both.
func WithClass(class func(name string) string) Option { return func(c *config) { c.class = class } }

// NewTracer returns a tracer that reports to OpenTelemetry. It does no I/O. An error of the meter
// provider goes to the error handler of OpenTelemetry.
func NewTracer(opts ...Option) *fencelock.Tracer {
	c := config{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider(), spans: true}
	for _, o := range opts {
		o(&c)
	}
	m := newMetrics(c.meters.Meter(scope), c.class)
	r := &reporter{metrics: m}
	if c.spans {
		r.tracer = c.tracers.Tracer(scope)
	}
	return &fencelock.Tracer{
		AcquireStart: r.acquireStart,
		AcquireWait:  r.acquireWait,
		AcquireEnd:   r.acquireEnd,
		HoldStart:    r.holdStart,
		HoldEnd:      r.holdEnd,
		RenewEnd:     m.renewEnd,
		ReleaseEnd:   r.releaseEnd,
		Stale:        r.stale,
		TickEnd:      m.tickEnd,
		OnceEnd:      m.onceEnd,
		RateEnd:      m.rateEnd,
	}
}

// reporter reports locks, with metrics and spans.
type reporter struct {
	*metrics
	tracer trace.Tracer // nil without spans
	spans  spans
}

// acquiring is the context of an acquisition in progress. It is used by one goroutine.
type acquiring struct {
	context.Context
	series *lockSeries
	span   trace.Span // nil without spans
	root   bool       // span has no parent
	joined bool       // it is in the queue
	linked string     // the traceparent of the holder that span links to
}

// acquiringKey is the context key of an acquiring.
type acquiringKey struct{}

func (a *acquiring) Value(key any) any {
	if key == (acquiringKey{}) {
		return a
	}
	return a.Context.Value(key)
}

func acquiringFrom(ctx context.Context) *acquiring {
	if a, ok := ctx.(*acquiring); ok {
		return a
	}
	a, _ := ctx.Value(acquiringKey{}).(*acquiring)
	return a
}

func (r *reporter) acquireStart(ctx context.Context, d fencelock.TraceAcquireStart) context.Context {
	a := &acquiring{Context: ctx, series: r.locks.Of(d.Engine, d.Mode.String(), d.Kind, d.Name)}
	if r.tracer != nil {
		r.startAcquire(a, d)
	}
	return a
}

func (r *reporter) acquireWait(ctx context.Context, d fencelock.TraceAcquireWait) {
	a := acquiringFrom(ctx)
	if a == nil {
		return
	}
	a.joined = true
	a.series.waiting.Add(1)
	if a.span != nil {
		a.span.AddEvent("fencelock.wait", trace.WithAttributes(positionKey.Int(d.Position)))
		a.link(d.Held)
	}
}

func (r *reporter) acquireEnd(ctx context.Context, d fencelock.TraceAcquireEnd) {
	a := acquiringFrom(ctx)
	if a == nil {
		return
	}
	if a.joined {
		a.series.waiting.Add(-1)
	}
	failure := lockmetrics.Failure(d.Err)
	a.series.acquired(ctx, r.metrics, d.Waited, a.joined, failure)
	if a.span != nil {
		r.spans.endAcquire(a, d, failure)
	}
}

// holding is the context of a hold.
type holding struct {
	context.Context
	lockmetrics.Hold
	lock   fencelock.TraceLock
	series *lockSeries
	span   trace.Span // nil without spans
}

// holdingKey is the context key of a holding.
type holdingKey struct{}

func (h *holding) Value(key any) any {
	if key == (holdingKey{}) {
		return h
	}
	return h.Context.Value(key)
}

// holdingFrom returns the hold of a lock, or nil if ctx is that of another one.
func holdingFrom(ctx context.Context, lock fencelock.TraceLock) *holding {
	if h, _ := ctx.Value(holdingKey{}).(*holding); h != nil && h.lock == lock {
		return h
	}
	return nil
}

func (r *reporter) holdStart(ctx context.Context, d fencelock.TraceLock) context.Context {
	h := &holding{Context: ctx, lock: d, series: r.locks.Of(d.Engine, d.Mode.String(), d.Kind, d.Name)}
	h.series.holds.Begin(&h.Hold)
	if d.Kind == fencelock.KindElection {
		r.terms.Add(ctx, 1, h.series.add...)
	}
	if r.tracer != nil {
		r.startHold(h, d)
	}
	return h
}

func (r *reporter) holdEnd(ctx context.Context, d fencelock.TraceHoldEnd) {
	h := holdingFrom(ctx, d.TraceLock)
	if h == nil {
		return
	}
	h.End()
	h.series.held(ctx, r.metrics, d)
	if h.span != nil {
		endHold(h.span, d)
	}
}

func (r *reporter) releaseEnd(ctx context.Context, d fencelock.TraceReleaseEnd) {
	var s *lockSeries
	if h := holdingFrom(ctx, d.TraceLock); h != nil {
		s = h.series
	} else { // a grant that was not used
		s = r.locks.Of(d.Engine, d.Mode.String(), d.Kind, d.Name)
	}
	s.released(ctx, r.metrics, d)
}

func (r *reporter) stale(ctx context.Context, d fencelock.TraceStale) {
	s := r.locks.Of(d.Engine, d.Mode.String(), d.Kind, d.Name)
	r.refusals.Add(ctx, 1, s.add...)
	if r.tracer != nil {
		trace.SpanFromContext(ctx).AddEvent("fencelock.fence.refused", trace.WithAttributes(
			resourceKey.String(d.Resource), nameKey.String(d.Name), tokenKey.Int64(d.Token), floorKey.Int64(d.Floor)))
	}
}
