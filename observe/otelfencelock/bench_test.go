package otelfencelock_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/observe/otelfencelock"
)

// The difference to "none" is what metrics, and metrics and spans, cost for one acquisition and its
// release in a request that is traced. Spans are recorded and then dropped. "The SDK alone" is the
// part of OpenTelemetry in it.
func BenchmarkOverhead(b *testing.B) {
	metrics := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	meters := otelfencelock.WithMeterProvider(metrics)
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()))
	spans := otelfencelock.WithTracerProvider(provider)
	request, span := provider.Tracer("test").Start(b.Context(), "request")
	defer span.End()
	b.Run("the SDK alone", func(b *testing.B) { aloneSDK(b, request, provider, metrics) })
	for _, c := range []struct {
		what   string
		ctx    context.Context
		tracer *fencelock.Tracer
	}{
		{"none", b.Context(), nil},
		{"metrics", b.Context(), otelfencelock.NewTracer(meters, otelfencelock.WithoutSpans())},
		{"metrics and spans", request, otelfencelock.NewTracer(meters, spans)},
	} {
		b.Run(c.what, func(b *testing.B) {
			locks := fencelock.New(memlock.New(nil), &fencelock.Config{Tracer: c.tracer})
			b.ReportAllocs()
			for b.Loop() {
				lock, err := locks.Acquire(c.ctx, "invoice:42")
				if err != nil {
					b.Fatal(err)
				}
				_ = lock.Release()
			}
		})
	}
}

// aloneSDK records two spans and three durations, as an acquisition and its release do.
func aloneSDK(b *testing.B, request context.Context, spans *sdktrace.TracerProvider, metrics *sdkmetric.MeterProvider) {
	tracer := spans.Tracer("test")
	histogram, err := metrics.Meter("test").Float64Histogram("duration")
	if err != nil {
		b.Fatal(err)
	}
	labels := []attribute.KeyValue{
		attribute.String("engine", "memory"), attribute.String("mode", "exclusive"),
		attribute.String("kind", "lock"), attribute.String("class", "invoice"),
	}
	series := []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(labels...))}
	b.ReportAllocs()
	for b.Loop() {
		for range 2 {
			_, span := tracer.Start(request, "span")
			span.SetAttributes(labels...)
			span.End()
		}
		for range 3 {
			histogram.Record(request, 0.001, series...)
		}
	}
}
