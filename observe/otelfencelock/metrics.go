package otelfencelock

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/observe/lockmetrics"
)

// instruments are those of the metrics that are recorded as they happen.
type instruments struct {
	counters   map[*lockmetrics.Metric]metric.Int64Counter
	histograms map[*lockmetrics.Metric]metric.Float64Histogram
}

// newMetrics returns a tracer that feeds the instruments of a meter.
func newMetrics(meter metric.Meter, class func(string) string) *fencelock.Tracer {
	i := instruments{map[*lockmetrics.Metric]metric.Int64Counter{}, map[*lockmetrics.Metric]metric.Float64Histogram{}}
	for _, m := range lockmetrics.Metrics() {
		i.add(meter, m)
	}
	r := lockmetrics.New(class, i.series)
	read(meter, r)
	return r.Tracer()
}

// add makes the instrument of a metric, unless it is a gauge.
func (i *instruments) add(meter metric.Meter, m *lockmetrics.Metric) {
	var err error
	unit, text := metric.WithUnit(m.Unit), metric.WithDescription(m.Help)
	switch {
	case m.Gauge:
	case m.Bounds != nil:
		i.histograms[m], err = meter.Float64Histogram(name(m), unit, text, metric.WithExplicitBucketBoundaries(m.Bounds...))
	default:
		i.counters[m], err = meter.Int64Counter(name(m), unit, text)
	}
	handle(err)
}

func name(m *lockmetrics.Metric) string { return "fencelock." + m.Name }

// handle passes an error to the error handler of OpenTelemetry, if it is not nil.
func handle(err error) {
	if err != nil {
		otel.Handle(err)
	}
}

// series makes a series of a metric for lockmetrics.
func (i *instruments) series(m *lockmetrics.Metric, values []string) lockmetrics.Series {
	with := metric.WithAttributeSet(attributes(m, values))
	if histogram, ok := i.histograms[m]; ok {
		options := []metric.RecordOption{with}
		return func(ctx context.Context, value float64) { histogram.Record(ctx, value, options...) }
	}
	counter, options := i.counters[m], []metric.AddOption{with}
	return func(ctx context.Context, value float64) { counter.Add(ctx, int64(value), options...) }
}

// attributes returns those of a series. What has not failed has no error.type.
func attributes(m *lockmetrics.Metric, values []string) attribute.Set {
	var all []attribute.KeyValue
	for n, value := range values {
		key := attribute.Key(m.Labels[n])
		switch {
		case key == "error.type" && value == "":
		case key == "contended":
			all = append(all, key.Bool(value == "true"))
		default:
			all = append(all, key.String(value))
		}
	}
	return attribute.NewSet(all...)
}

// read registers the instruments whose values are read at each collection. A number of locks is a
// sum over processes, and an age is not.
func read(meter metric.Meter, r *lockmetrics.Recorder) {
	var all []metric.Observable
	ages, numbers := map[*lockmetrics.Metric]metric.Float64Observable{}, map[*lockmetrics.Metric]metric.Int64Observable{}
	for _, m := range lockmetrics.Metrics() {
		unit, text := metric.WithUnit(m.Unit), metric.WithDescription(m.Help)
		switch {
		case !m.Gauge:
		case m.Unit == "s":
			gauge, err := meter.Float64ObservableGauge(name(m), unit, text)
			handle(err)
			ages[m], all = gauge, append(all, gauge)
		default:
			sum, err := meter.Int64ObservableUpDownCounter(name(m), unit, text)
			handle(err)
			numbers[m], all = sum, append(all, sum)
		}
	}
	_, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		r.Read(func(m *lockmetrics.Metric, values []string, value float64) {
			with := metric.WithAttributeSet(attributes(m, values))
			if age, ok := ages[m]; ok {
				o.ObserveFloat64(age, value, with)
				return
			}
			o.ObserveInt64(numbers[m], int64(value), with)
		})
		return nil
	}, all...)
	handle(err)
}
