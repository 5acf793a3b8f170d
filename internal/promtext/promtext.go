// Package promtext writes metrics in the text format of Prometheus.
package promtext

import (
	"fmt"
	"net/http"
	"strings"
)

// Metric is one metric with one value.
type Metric struct {
	Name  string
	Type  string // "gauge" or "counter"
	Help  string // one line
	Value any    // a number
}

// Write answers a request with metrics. All have the same label.
func Write(w http.ResponseWriter, label, value string, metrics []Metric) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	value = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(value)
	for _, m := range metrics {
		fmt.Fprintf(w, "# HELP %[1]s %[2]s\n# TYPE %[1]s %[3]s\n%[1]s{%[4]s=\"%[5]s\"} %[6]v\n", m.Name, m.Help, m.Type, label, value, m.Value)
	}
}
