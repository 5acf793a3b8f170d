package promfencelock

import (
	"context"
	"strings"
	"time"

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
	counters   map[*lockmetrics.Metric]*prometheus.CounterVec
	histograms map[*lockmetrics.Metric]*prometheus.HistogramVec
	gauges     map[*lockmetrics.Metric]*prometheus.Desc
	recorder   *lockmetrics.Recorder
	tracer     *fencelock.Tracer
}

// New returns a Collector. cfg may be nil.
func New(cfg *Config) *Collector {
	c := &Collector{
		counters:   map[*lockmetrics.Metric]*prometheus.CounterVec{},
		histograms: map[*lockmetrics.Metric]*prometheus.HistogramVec{},
		gauges:     map[*lockmetrics.Metric]*prometheus.Desc{},
	}
	for _, m := range lockmetrics.Metrics() {
		c.add(m)
	}
	var class func(string) string
	if cfg != nil {
		class = cfg.Class
	}
	c.recorder = lockmetrics.New(class, c.series)
	c.tracer = c.recorder.Tracer()
	return c
}

// add adds a metric, under the name that an exporter of OpenTelemetry gives it.
func (c *Collector) add(m *lockmetrics.Metric) {
	name := "fencelock_" + underscores(m.Name)
	if m.Unit == "s" {
		name += "_seconds"
	}
	var labels []string
	for _, key := range m.Labels {
		labels = append(labels, underscores(key))
	}
	switch {
	case m.Gauge:
		c.gauges[m] = prometheus.NewDesc(name, m.Help, labels, nil)
	case m.Bounds != nil:
		c.histograms[m] = prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: m.Help, Buckets: m.Bounds,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}, labels)
	default:
		c.counters[m] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: name + "_total", Help: m.Help}, labels)
	}
}

func underscores(name string) string { return strings.ReplaceAll(name, ".", "_") }

// series makes a series of a metric for lockmetrics.
func (c *Collector) series(m *lockmetrics.Metric, values []string) lockmetrics.Series {
	if m.Bounds != nil {
		histogram := c.histograms[m].WithLabelValues(values...)
		return func(_ context.Context, value float64) { histogram.Observe(value) }
	}
	counter := c.counters[m].WithLabelValues(values...)
	return func(_ context.Context, value float64) { counter.Add(value) }
}

// Tracer returns the tracer that feeds the Collector.
func (c *Collector) Tracer() *fencelock.Tracer { return c.tracer }

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, v := range c.vectors() {
		v.Describe(out)
	}
	for _, d := range c.gauges {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	for _, v := range c.vectors() {
		v.Collect(out)
	}
	c.recorder.Read(func(m *lockmetrics.Metric, values []string, value float64) {
		out <- prometheus.MustNewConstMetric(c.gauges[m], prometheus.GaugeValue, value, values...)
	})
}

// vectors returns what is counted between scrapes.
func (c *Collector) vectors() (all []prometheus.Collector) {
	for _, v := range c.histograms {
		all = append(all, v)
	}
	for _, v := range c.counters {
		all = append(all, v)
	}
	return all
}
