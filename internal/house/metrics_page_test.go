package house_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/observe/lockmetrics"
)

const metricsPage = "docs/observability.md"

// metricsMark is what the page of the metrics has between its marks.
var metricsMark = regexp.MustCompile(`(?s)(<!-- metrics -->\n).*?(<!-- end -->)`)

// writeMetrics returns a page with the table of metrics written again.
func writeMetrics(text string) string {
	return metricsMark.ReplaceAllStringFunc(text, func(s string) string {
		m := metricsMark.FindStringSubmatch(s)
		var out strings.Builder
		out.WriteString("| metric | labels | what it shows |\n|---|---|---|\n")
		for _, metric := range lockmetrics.Metrics() {
			shows := strings.TrimSuffix(metric.Help, ".")
			if metric.Hint != "" {
				shows += ": " + metric.Hint
			}
			fmt.Fprintf(&out, "| `%s` | %s | %s |\n", prometheusName(metric), labelsOf(metric), shows)
		}
		return m[1] + out.String() + m[2]
	})
}

// prometheusName is the name that an exporter of OpenTelemetry gives a metric.
func prometheusName(m *lockmetrics.Metric) string {
	name := "fencelock_" + strings.ReplaceAll(m.Name, ".", "_")
	switch {
	case m.Unit == "s":
		return name + "_seconds"
	case m.Bounds == nil && !m.Gauge:
		return name + "_total"
	}
	return name
}

// labelsOf lists the labels of a metric: the four of a lock in one word, and the values of the last.
func labelsOf(m *lockmetrics.Metric) string {
	keys, cells := m.Labels, []string(nil)
	if len(keys) > 1 && keys[1] == "mode" {
		keys, cells = keys[4:], []string{"lock"}
	}
	for _, key := range keys {
		cells = append(cells, "`"+strings.ReplaceAll(key, ".", "_")+"`")
	}
	words := slices.DeleteFunc(slices.Clone(m.Words), func(word string) bool { return word == "_OTHER" })
	if len(words) == 0 {
		return strings.Join(cells, ", ")
	}
	return strings.Join(cells, ", ") + ": `" + strings.Join(words, "`, `") + "`"
}

// TestObservabilityPage: the Go of the page is part of the examples of the two exporters, which run,
// and the page has the table of all metrics.
func TestObservabilityPage(t *testing.T) {
	examples := dedent(readText(t, "observe/promfencelock/example_test.go")) + dedent(readText(t, "observe/otelfencelock/example_test.go"))
	for _, b := range readBlocks(t, metricsPage) {
		if b.language == "go" && !strings.Contains(examples, b.text) {
			t.Errorf("%s:%d: not part of an example of promfencelock or otelfencelock", metricsPage, b.line)
		}
	}
	if table := metricsMark.FindString(readText(t, metricsPage)); strings.Count(table, "\n| `fencelock_") != len(lockmetrics.Metrics()) {
		t.Errorf("%s has the table\n%s", metricsPage, table)
	}
}
