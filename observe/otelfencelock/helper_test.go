package otelfencelock_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/observe/otelfencelock"
)

// meter returns a tracer, and a function that collects its metrics.
func meter(opts ...otelfencelock.Option) (*fencelock.Tracer, func(t *testing.T) metrics) {
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	collect := func(t *testing.T) metrics {
		t.Helper()
		var all metricdata.ResourceMetrics
		if err := reader.Collect(context.Background(), &all); err != nil {
			t.Fatal(err)
		}
		out := metrics{}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				out[m.Name] = points(t, m.Data)
			}
		}
		return out
	}
	return otelfencelock.NewTracer(append(opts, otelfencelock.WithMeterProvider(provider))...), collect
}

// metrics are points by the name of their metric.
type metrics map[string][]point

// point is one value with its attributes, such as "class=invoice engine=memory". The value of a
// histogram is its count.
type point struct {
	attrs string
	value float64
	sum   float64 // of a histogram
}

func points(t *testing.T, data metricdata.Aggregation) (all []point) {
	t.Helper()
	switch data := data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			all = append(all, point{attrs: p.Attributes.Encoded(encoder{}), value: float64(p.Value)})
		}
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			all = append(all, point{attrs: p.Attributes.Encoded(encoder{}), value: p.Value})
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			all = append(all, point{attrs: p.Attributes.Encoded(encoder{}), value: float64(p.Count), sum: p.Sum})
		}
	default:
		t.Fatalf("unknown data %T", data)
	}
	return all
}

// sum returns the sum of the values of the points that have all the attributes, and whether there
// is one.
func (m metrics) sum(name string, attrs ...string) (total float64, found bool) {
	for _, p := range m[name] {
		has := strings.Fields(p.attrs)
		if !slices.ContainsFunc(attrs, func(a string) bool { return !slices.Contains(has, a) }) {
			total, found = total+p.value, true
		}
	}
	return total, found
}

// want fails the test unless the points with the attributes have that sum.
func (m metrics) want(t *testing.T, value float64, name string, attrs ...string) {
	t.Helper()
	if got, found := m.sum(name, attrs...); got != value || !found {
		t.Errorf("%s %q: %v (found: %v), want %v; there is %v", name, attrs, got, found, value, m[name])
	}
}
