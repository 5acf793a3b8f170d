// Package promfencelock reports metrics of locks to Prometheus, for programs without OpenTelemetry.
//
//	metrics := promfencelock.New(nil)
//	prometheus.MustRegister(metrics)
//	locks := fencelock.New(engine, &fencelock.Config{Tracer: metrics.Tracer()})
//	http.Handle("/metrics", promhttp.Handler())
//
// Packages election, cron, semaphore and idempotent report through the Locker that they are given.
// A limiter of package ratelimit reports with Config.OnDecision: metrics.Tracer().RateEnd. One
// [Collector] may serve several Lockers.
//
// The metrics are those of package otelfencelock, with names as a Prometheus exporter of
// OpenTelemetry writes them: fencelock.acquire.duration is fencelock_acquire_duration_seconds, and
// fencelock.hold.losses is fencelock_hold_losses_total. The labels are its attributes: engine, mode,
// kind, class, contended, error_type, hold_end and result. So rules and boards work with both.
// docs/observability.md lists them.
//
// Histograms have classic buckets, and native ones for servers that scrape them.
package promfencelock
