package otelfencelock

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/observe/lockmetrics"
)

// The attributes of metrics.
const (
	engineKey    = attribute.Key("engine")
	modeKey      = attribute.Key("mode")
	kindKey      = attribute.Key("kind")
	classKey     = attribute.Key("class")
	contendedKey = attribute.Key("contended")
	errorKey     = attribute.Key("error.type")
	endKey       = attribute.Key("hold.end")
	resultKey    = attribute.Key("result")
)

// metrics are the instruments and their series.
type metrics struct {
	acquire, hold, release, renewal, margin, run                            metric.Float64Histogram
	failures, losses, refusals, terms, renewals, ticks, outcomes, decisions metric.Int64Counter

	locks                *lockmetrics.Table[lockSeries]
	jobs, keys, limiters *lockmetrics.Table[results]
}

func newMetrics(meter metric.Meter, class func(string) string) *metrics {
	histogram := func(name, unit, text string, bounds []float64) metric.Float64Histogram {
		h, err := meter.Float64Histogram("fencelock."+name, metric.WithUnit(unit), metric.WithDescription(text), metric.WithExplicitBucketBoundaries(bounds...))
		handle(err)
		return h
	}
	counter := func(name, unit, text string) metric.Int64Counter {
		c, err := meter.Int64Counter("fencelock."+name, metric.WithUnit(unit), metric.WithDescription(text))
		handle(err)
		return c
	}
	m := &metrics{
		acquire: histogram("acquire.duration", "s", "Duration of successful acquisitions.", lockmetrics.CallBounds),
		hold:    histogram("hold.duration", "s", "How long locks were held.", lockmetrics.HoldBounds),
		release: histogram("release.duration", "s", "Duration of releases.", lockmetrics.CallBounds),
		renewal: histogram("renewal.duration", "s", "Duration of batches of renewals.", lockmetrics.CallBounds),
		margin:  histogram("renewal.margin", "1", "The least part of its lease that a lock of a batch of renewals had left.", lockmetrics.MarginBounds),
		run:     histogram("cron.run.duration", "s", "Duration of runs of cron jobs.", lockmetrics.HoldBounds),

		failures:  counter("acquire.failures", "{acquisition}", "Acquisitions that failed."),
		losses:    counter("hold.losses", "{lock}", "Locks that were lost before they were released."),
		refusals:  counter("fence.refusals", "{write}", "Writes that guards refused because of their fencing token."),
		terms:     counter("election.terms", "{term}", "Terms that this process began as the leader."),
		renewals:  counter("renewal.locks", "{lock}", "Renewals of locks."),
		ticks:     counter("cron.ticks", "{tick}", "Ticks of cron jobs on this instance."),
		outcomes:  counter("idempotent.outcomes", "{call}", "Calls for an idempotency key."),
		decisions: counter("ratelimit.decisions", "{decision}", "Decisions of rate limiters."),
	}
	m.locks = lockmetrics.NewTable(class, m.newLockSeries)
	m.jobs = lockmetrics.NewTable(class, m.newJob)
	m.keys = lockmetrics.NewTable(class, newResults)
	m.limiters = lockmetrics.NewTable(class, newResults)
	m.observe(meter)
	return m
}

// handle passes an error to the error handler of OpenTelemetry, if it is not nil.
func handle(err error) {
	if err != nil {
		otel.Handle(err)
	}
}

// observe registers the instruments whose values are read at each collection.
func (m *metrics) observe(meter metric.Meter) {
	gauge := func(name, unit, text string) metric.Int64ObservableUpDownCounter {
		g, err := meter.Int64ObservableUpDownCounter("fencelock."+name, metric.WithUnit(unit), metric.WithDescription(text))
		handle(err)
		return g
	}
	held := gauge("hold.count", "{lock}", "Locks that are held now.")
	waiting := gauge("wait.count", "{acquisition}", "Acquisitions that are in a queue now.")
	leading := gauge("election.leading", "{term}", "1 while this process leads.")
	oldest, err := meter.Float64ObservableGauge("fencelock.hold.oldest", metric.WithUnit("s"), metric.WithDescription("How long the oldest lock has been held."))
	handle(err)
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for labels, s := range m.locks.All() {
			n, age := s.holds.State()
			o.ObserveInt64(held, int64(n), s.observe...)
			o.ObserveInt64(waiting, s.waiting.Load(), s.observe...)
			o.ObserveFloat64(oldest, age.Seconds(), s.observe...)
			if labels.Kind == fencelock.KindElection {
				o.ObserveInt64(leading, int64(n), s.observe...)
			}
		}
		return nil
	}, held, waiting, leading, oldest)
	handle(err)
}

// lockSeries are the attributes of the locks of one class, and what is held and waited for now.
type lockSeries struct {
	waiting          atomic.Int64
	holds            lockmetrics.Holds
	add              []metric.AddOption // the plain attributes
	observe          []metric.ObserveOption
	free, contended  []metric.RecordOption
	ends             map[string][]metric.RecordOption // by hold.end
	failures, losses map[string][]metric.AddOption    // by error.type
	releases         map[string][]metric.RecordOption // likewise; "" is a success
}

func (m *metrics) newLockSeries(l lockmetrics.Labels) *lockSeries {
	with := func(more ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributes(append(more, engineKey.String(l.Engine), modeKey.String(l.Mode), kindKey.String(l.Kind), classKey.String(l.Class))...)
	}
	record := func(more ...attribute.KeyValue) []metric.RecordOption { return []metric.RecordOption{with(more...)} }
	s := &lockSeries{
		add:       []metric.AddOption{with()},
		observe:   []metric.ObserveOption{with()},
		free:      record(contendedKey.Bool(false)),
		contended: record(contendedKey.Bool(true)),
		ends:      map[string][]metric.RecordOption{},
		failures:  map[string][]metric.AddOption{},
		losses:    map[string][]metric.AddOption{},
		releases:  map[string][]metric.RecordOption{"": record()},
	}
	for _, word := range lockmetrics.HoldEnds {
		s.ends[word] = record(endKey.String(word))
	}
	for _, word := range lockmetrics.Failures {
		s.failures[word] = []metric.AddOption{with(errorKey.String(word))}
		s.releases[word] = record(errorKey.String(word))
	}
	ctx := context.Background()
	for _, word := range lockmetrics.Losses {
		s.losses[word] = []metric.AddOption{with(errorKey.String(word))}
		m.losses.Add(ctx, 0, s.losses[word]...)
	}
	m.failures.Add(ctx, 0, s.failures["unavailable"]...)
	m.refusals.Add(ctx, 0, s.add...)
	if l.Kind == fencelock.KindElection {
		m.terms.Add(ctx, 0, s.add...)
	}
	return s
}

func (m *metrics) renewEnd(ctx context.Context, d fencelock.TraceRenewEnd) {
	engine := engineKey.String(d.Engine)
	m.renewal.Record(ctx, d.Took.Seconds(), metric.WithAttributes(engine))
	if d.Margin < 1 {
		m.margin.Record(ctx, d.Margin, metric.WithAttributes(engine))
	}
	count := func(result string, n int) {
		m.renewals.Add(ctx, int64(n), metric.WithAttributes(engine, resultKey.String(result)))
	}
	count("renewed", d.Locks-d.Failed)
	count("failed", d.Failed-d.Gone)
	count("gone", d.Gone)
}

// results are the attributes of a job, a limiter or a class of keys.
type results struct{ attrs []attribute.KeyValue }

func newResults(l lockmetrics.Labels) *results {
	return &results{[]attribute.KeyValue{engineKey.String(l.Engine), classKey.String(l.Class)}}
}

// with returns the attributes and more.
func (r *results) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(more, r.attrs...)...)
}

func (m *metrics) newJob(l lockmetrics.Labels) *results {
	r := newResults(l)
	for _, outcome := range []string{"ok", "failed", "late", "error"} {
		m.ticks.Add(context.Background(), 0, r.with(resultKey.String(outcome)))
	}
	return r
}

func (m *metrics) tickEnd(ctx context.Context, d fencelock.TraceTick) {
	with := m.jobs.Of(d.Engine, "", fencelock.KindCron, d.Job).with(resultKey.String(d.Outcome))
	m.ticks.Add(ctx, 1, with)
	if lockmetrics.Ran(d.Outcome) {
		m.run.Record(ctx, d.Took.Seconds(), with)
	}
}

func (m *metrics) onceEnd(ctx context.Context, d fencelock.TraceOnce) {
	m.outcomes.Add(ctx, 1, m.keys.Of(d.Engine, "", fencelock.KindLock, d.Name).with(resultKey.String(d.Outcome)))
}

func (m *metrics) rateEnd(ctx context.Context, d fencelock.TraceRate) {
	attrs := []attribute.KeyValue{resultKey.String(lockmetrics.Decision(d))}
	if failure := lockmetrics.Failure(d.Err); failure != "" {
		attrs = append(attrs, errorKey.String(failure))
	}
	m.decisions.Add(ctx, 1, m.limiters.Of(d.Engine, "", lockmetrics.KindRate, d.Limiter).with(attrs...))
}
