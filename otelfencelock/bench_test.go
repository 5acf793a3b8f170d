package otelfencelock_test

import (
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/otelfencelock"
)

// The difference to "none" is what metrics, and metrics and spans, cost for one acquisition and its
// release. Spans are recorded and then dropped.
func BenchmarkOverhead(b *testing.B) {
	meters := otelfencelock.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())))
	spans := otelfencelock.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample())))
	for _, c := range []struct {
		what   string
		tracer *fencelock.Tracer
	}{
		{"none", nil},
		{"metrics", otelfencelock.NewTracer(meters, otelfencelock.WithoutSpans())},
		{"metrics and spans", otelfencelock.NewTracer(meters, spans)},
	} {
		b.Run(c.what, func(b *testing.B) {
			locks := fencelock.New(memlock.New(nil), &fencelock.Config{Tracer: c.tracer})
			b.ReportAllocs()
			for b.Loop() {
				lock, err := locks.Acquire(b.Context(), "invoice:42")
				if err != nil {
					b.Fatal(err)
				}
				_ = lock.Release()
			}
		})
	}
}
