// Package lockmetrics has the metrics of locks, and records them for the exporters: package
// promfencelock exports them to Prometheus, otelfencelock to OpenTelemetry. Programs use one of those.
//
// An exporter gives [New] a function that makes a series, and gets a tracer. [Metrics] declares what
// it exports, so that a new metric is declared and recorded here and nowhere else.
//
// The exporters are modules of their own and may be older than this package, so only add to it.
package lockmetrics
