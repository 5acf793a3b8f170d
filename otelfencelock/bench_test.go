package otelfencelock_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/otelfencelock"
)

// The difference to "none" is what metrics, and metrics and spans, cost for one acquisition and its
// release in a request that is traced. Spans are recorded and then dropped.
func BenchmarkOverhead(b *testing.B) {
	meters := otelfencelock.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())))
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()))
	spans := otelfencelock.WithTracerProvider(provider)
	request, span := provider.Tracer("test").Start(b.Context(), "request")
	defer span.End()
	b.Run("two spans alone", func(b *testing.B) {
		tracer := provider.Tracer("test")
		b.ReportAllocs()
		for b.Loop() {
			for range 2 {
				_, span := tracer.Start(request, "span")
				span.SetAttributes(attribute.String("a", "invoice:42"), attribute.String("b", "memory"), attribute.String("c", "exclusive"), attribute.String("d", "lock"))
				span.End()
			}
		}
	})
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
