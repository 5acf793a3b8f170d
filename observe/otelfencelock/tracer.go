package otelfencelock

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencelock/fencelock"
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
	tracer := newMetrics(c.meters.Meter(scope), c.class)
	reportRefusals(tracer)
	if c.tracers != nil {
		addSpans(tracer, c.tracers.Tracer(scope))
	}
	return tracer
}
