package otelfencelock_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/observe/otelfencelock"
)

func Example() {
	engine, spans := memlock.New(nil), tracetest.NewSpanRecorder()
	otel.SetTracerProvider(sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)))

	tracer := otelfencelock.NewTracer() // the global providers
	locks := fencelock.New(engine, &fencelock.Config{Tracer: tracer})

	_ = locks.Do(context.Background(), "invoice:42", func(context.Context) error { return nil })
	for _, s := range spans.Ended() {
		fmt.Println(s.Name())
	}
	// Output:
	// fencelock.acquire
	// fencelock.hold
}
