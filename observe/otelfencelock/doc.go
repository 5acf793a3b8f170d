// Package otelfencelock reports metrics and spans of locks to OpenTelemetry.
//
//	tracer := otelfencelock.NewTracer() // the global providers of OpenTelemetry
//	locks := fencelock.New(engine, &fencelock.Config{Tracer: tracer})
//
// Packages election, cron, semaphore and idempotent report through the Locker that they are given.
// A limiter of package ratelimit reports with Config.OnDecision: tracer.RateEnd. One tracer may serve
// several Lockers. The package needs the OpenTelemetry API only; the program chooses the SDK.
//
// # Metrics
//
// The page docs/observability.md lists the metrics and their attributes, under the names that
// Prometheus has for them: fencelock_hold_losses_total is fencelock.hold.losses.
//
// Names of locks are not attributes of metrics, since each would be a time series. The attribute
// class is the text before the first colon or slash, such as "invoice" of "invoice:42". The names of
// elections, cron jobs and limiters are whole classes. Each kind has at most 20 classes; names beyond
// them have the class _OTHER. [WithClass] replaces the rule.
//
// # Spans
//
// An acquisition and a hold are one span each. Work under a lock belongs to the span of the hold.
// The span of an acquisition that waited links to the trace of the holder that it waited for, in
// whatever process that is: the engine stores the traceparent with the lock. A write that a guard
// refuses is an event of the current span.
package otelfencelock
