package promfencelock

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/observe/lockmetrics"
)

// lockLabels are the labels of the metrics of locks.
var lockLabels = []string{"engine", "mode", "kind", "class"}

// What is read at each scrape.
var (
	held    = prometheus.NewDesc("fencelock_hold_count", "Locks that are held now.", lockLabels, nil)
	oldest  = prometheus.NewDesc("fencelock_hold_oldest_seconds", "How long the oldest lock has been held.", lockLabels, nil)
	waiting = prometheus.NewDesc("fencelock_wait_count", "Acquisitions that are in a queue now.", lockLabels, nil)
	leading = prometheus.NewDesc("fencelock_election_leading", "1 while this process leads.", lockLabels, nil)
)

// metrics are the metrics and their series.
type metrics struct {
	acquire, hold, release, renewal, margin, run *prometheus.HistogramVec

	failures, losses, refusals, terms, renewals, ticks, outcomes, decisions *prometheus.CounterVec

	locks                *lockmetrics.Table[lockSeries]
	jobs, keys, limiters *lockmetrics.Table[labels]
}

func newMetrics() metrics {
	histogram := func(name, help string, bounds []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fencelock_" + name, Help: help, Buckets: bounds,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fencelock_" + name + "_total", Help: help}, labels)
	}
	lock := func(more ...string) []string { return append(lockLabels[:4:4], more...) }
	return metrics{
		acquire: histogram("acquire_duration_seconds", "Duration of successful acquisitions.", lockmetrics.CallBounds, lock("contended")...),
		hold:    histogram("hold_duration_seconds", "How long locks were held.", lockmetrics.HoldBounds, lock("hold_end")...),
		release: histogram("release_duration_seconds", "Duration of releases.", lockmetrics.CallBounds, lock("error_type")...),
		renewal: histogram("renewal_duration_seconds", "Duration of batches of renewals.", lockmetrics.CallBounds, "engine"),
		margin:  histogram("renewal_margin", "The least part of its lease that a lock of a batch of renewals had left.", lockmetrics.MarginBounds, "engine"),
		run:     histogram("cron_run_duration_seconds", "Duration of runs of cron jobs.", lockmetrics.HoldBounds, "engine", "class", "result"),

		failures:  counter("acquire_failures", "Acquisitions that failed.", lock("error_type")...),
		losses:    counter("hold_losses", "Locks that were lost before they were released.", lock("error_type")...),
		refusals:  counter("fence_refusals", "Writes that guards refused because of their fencing token.", lock()...),
		terms:     counter("election_terms", "Terms that this process began as the leader.", lock()...),
		renewals:  counter("renewal_locks", "Renewals of locks.", "engine", "result"),
		ticks:     counter("cron_ticks", "Ticks of cron jobs on this instance.", "engine", "class", "result"),
		outcomes:  counter("idempotent_outcomes", "Calls for an idempotency key.", "engine", "class", "result"),
		decisions: counter("ratelimit_decisions", "Decisions of rate limiters.", "engine", "class", "result", "error_type"),
	}
}

// vectors returns what is counted between scrapes.
func (m *metrics) vectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.acquire, m.hold, m.release, m.renewal, m.margin, m.run,
		m.failures, m.losses, m.refusals, m.terms, m.renewals, m.ticks, m.outcomes, m.decisions,
	}
}

// lockSeries are the metrics of the locks of one class, and what is held and waited for now.
type lockSeries struct {
	waiting atomic.Int64
	holds   lockmetrics.Holds

	labels                    []string // without spare capacity: append copies it
	free, contended, released prometheus.Observer
	ends                      map[string]prometheus.Observer // by hold_end
	failures, losses          map[string]prometheus.Counter  // by error_type
	refusals, terms           prometheus.Counter             // terms is nil unless it is an election
}

func (m *metrics) newLockSeries(l lockmetrics.Labels) *lockSeries {
	values := []string{l.Engine, l.Mode, l.Kind, l.Class}
	with := func(more string) []string { return append(values[:4:4], more) }
	s := &lockSeries{
		labels:    values[:4:4],
		free:      m.acquire.WithLabelValues(with("false")...),
		contended: m.acquire.WithLabelValues(with("true")...),
		released:  m.release.WithLabelValues(with("")...),
		refusals:  m.refusals.WithLabelValues(values...),
		ends:      map[string]prometheus.Observer{},
		failures:  map[string]prometheus.Counter{},
		losses:    map[string]prometheus.Counter{},
	}
	for _, word := range lockmetrics.HoldEnds {
		s.ends[word] = m.hold.WithLabelValues(with(word)...)
	}
	for _, word := range lockmetrics.Failures {
		s.failures[word] = m.failures.WithLabelValues(with(word)...)
	}
	for _, word := range lockmetrics.Losses {
		s.losses[word] = m.losses.WithLabelValues(with(word)...)
	}
	if l.Kind == fencelock.KindElection {
		s.terms = m.terms.WithLabelValues(values...)
	}
	return s
}

// labels are those of a job, a limiter or a class of keys.
type labels struct{ engine, class string }

func newLabels(l lockmetrics.Labels) *labels { return &labels{l.Engine, l.Class} }

func (m *metrics) newJob(l lockmetrics.Labels) *labels {
	for _, outcome := range []string{"ok", "failed", "late", "error"} {
		m.ticks.WithLabelValues(l.Engine, l.Class, outcome)
	}
	return newLabels(l)
}
