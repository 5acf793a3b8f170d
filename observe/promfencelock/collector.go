package promfencelock

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/observe/lockmetrics"
)

// Config holds the settings of a Collector. The zero Config is ready to use.
type Config struct {
	// Class returns the class of the name of a lock, an election, a job or a limiter. At most 20
	// classes of each kind become series; the others are _OTHER. nil, the default, means the text
	// before the first colon or slash, and the whole name of an election, a job or a limiter.
	Class func(name string) string
}

// Collector counts what a tracer reports, and is a prometheus.Collector.
type Collector struct {
	metrics
	tracer *fencelock.Tracer
}

// New returns a Collector. cfg may be nil.
func New(cfg *Config) *Collector {
	c := &Collector{metrics: newMetrics()}
	var class func(string) string
	if cfg != nil {
		class = cfg.Class
	}
	c.locks = lockmetrics.NewTable(class, c.newLockSeries)
	c.jobs = lockmetrics.NewTable(class, c.newJob)
	c.keys = lockmetrics.NewTable(class, newLabels)
	c.limiters = lockmetrics.NewTable(class, newLabels)
	c.tracer = &fencelock.Tracer{
		AcquireWait: c.acquireWait,
		AcquireEnd:  c.acquireEnd,
		HoldStart:   c.holdStart,
		HoldEnd:     c.holdEnd,
		RenewEnd:    c.renewEnd,
		ReleaseEnd:  c.releaseEnd,
		Stale:       c.stale,
		TickEnd:     c.tickEnd,
		OnceEnd:     c.onceEnd,
		RateEnd:     c.rateEnd,
	}
	return c
}

// Tracer returns the tracer that feeds the Collector.
func (c *Collector) Tracer() *fencelock.Tracer { return c.tracer }

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, v := range c.vectors() {
		v.Describe(out)
	}
	for _, d := range []*prometheus.Desc{held, oldest, waiting, leading} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	for _, v := range c.vectors() {
		v.Collect(out)
	}
	for l, s := range c.locks.All() {
		gauge := func(d *prometheus.Desc, value float64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, l.Engine, l.Mode, l.Kind, l.Class)
		}
		n, age := s.holds.State()
		gauge(held, float64(n))
		gauge(oldest, age.Seconds())
		gauge(waiting, float64(s.waiting.Load()))
		if l.Kind == fencelock.KindElection {
			gauge(leading, float64(n))
		}
	}
}

// of returns the series of a lock.
func (c *Collector) of(d fencelock.TraceLock) *lockSeries {
	return c.locks.Of(d.Engine, d.Mode.String(), d.Kind, d.Name)
}

func (c *Collector) acquireWait(_ context.Context, d fencelock.TraceAcquireWait) {
	c.of(fencelock.TraceLock{Name: d.Name, Mode: d.Mode, Kind: d.Kind, Engine: d.Engine}).waiting.Add(1)
}

func (c *Collector) acquireEnd(_ context.Context, d fencelock.TraceAcquireEnd) {
	s := c.of(d.TraceLock)
	switch failure := lockmetrics.Failure(d.Err); {
	case failure != "":
		s.failures[failure].Inc()
	case d.Queued > 0:
		s.contended.Observe(d.Waited.Seconds())
	default:
		s.free.Observe(d.Waited.Seconds())
	}
	if d.Queued > 0 {
		s.waiting.Add(-1)
	}
}

func (c *Collector) holdStart(ctx context.Context, d fencelock.TraceLock) context.Context {
	s := c.of(d)
	if s.terms != nil {
		s.terms.Inc()
	}
	return lockmetrics.Begin(ctx, d, s, &s.holds)
}

func (c *Collector) holdEnd(ctx context.Context, d fencelock.TraceHoldEnd) {
	h := lockmetrics.HeldFrom[lockSeries](ctx, d.TraceLock)
	if h == nil {
		return
	}
	h.End()
	h.Series.ends[lockmetrics.HoldEnd(d)].Observe(d.Held.Seconds())
	if d.Lost != nil {
		h.Series.losses[lockmetrics.Loss(d.Lost)].Inc()
	}
}

func (c *Collector) renewEnd(_ context.Context, d fencelock.TraceRenewEnd) {
	c.renewal.WithLabelValues(d.Engine).Observe(d.Took.Seconds())
	if d.Margin < 1 {
		c.margin.WithLabelValues(d.Engine).Observe(d.Margin)
	}
	c.renewals.WithLabelValues(d.Engine, "renewed").Add(float64(d.Locks - d.Failed))
	c.renewals.WithLabelValues(d.Engine, "failed").Add(float64(d.Failed - d.Gone))
	c.renewals.WithLabelValues(d.Engine, "gone").Add(float64(d.Gone))
}

func (c *Collector) releaseEnd(ctx context.Context, d fencelock.TraceReleaseEnd) {
	var s *lockSeries
	if h := lockmetrics.HeldFrom[lockSeries](ctx, d.TraceLock); h != nil {
		s = h.Series
	} else { // a grant that was not used
		s = c.of(d.TraceLock)
	}
	if failure := lockmetrics.Failure(d.Err); failure != "" {
		c.release.WithLabelValues(append(s.labels, failure)...).Observe(d.Took.Seconds())
		return
	}
	s.released.Observe(d.Took.Seconds())
}

func (c *Collector) stale(_ context.Context, d fencelock.TraceStale) {
	c.of(fencelock.TraceLock{Name: d.Name, Mode: d.Mode, Kind: d.Kind, Engine: d.Engine}).refusals.Inc()
}

func (c *Collector) tickEnd(_ context.Context, d fencelock.TraceTick) {
	job := c.jobs.Of(d.Engine, "", fencelock.KindCron, d.Job)
	c.ticks.WithLabelValues(job.engine, job.class, d.Outcome).Inc()
	if lockmetrics.Ran(d.Outcome) {
		c.run.WithLabelValues(job.engine, job.class, d.Outcome).Observe(d.Took.Seconds())
	}
}

func (c *Collector) onceEnd(_ context.Context, d fencelock.TraceOnce) {
	l := c.keys.Of(d.Engine, "", fencelock.KindLock, d.Name)
	c.outcomes.WithLabelValues(l.engine, l.class, d.Outcome).Inc()
}

func (c *Collector) rateEnd(_ context.Context, d fencelock.TraceRate) {
	l := c.limiters.Of(d.Engine, "", lockmetrics.KindRate, d.Limiter)
	c.decisions.WithLabelValues(l.engine, l.class, lockmetrics.Decision(d), lockmetrics.Failure(d.Err)).Inc()
}
