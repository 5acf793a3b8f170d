package main

import (
	"fmt"
	"math"
)

// row is one line of the table.
type row struct {
	what   string
	unit   string               // "s" for seconds; empty for numbers
	places int                  // decimals of a number
	values map[string]float64   // by contestant
	ratios map[string]float64   // to base, when base is set
	rounds map[string][]float64 // what each contestant took in each round, if rounds can be compared
	base   string
	bars   []bar
}

// bar is what our column must reach.
type bar struct {
	says string
	met  bool
	test func(row) (says string, met bool) // sets both once the row is complete
}

// bestPeer stands for whichever other library did best.
const bestPeer = "best peer"

// atMost wants us to take no more than factor times what other takes.
func atMost(other string, factor float64) bar {
	return bar{test: func(r row) (string, bool) {
		name := other
		if other == bestPeer {
			name = r.best()
		}
		got := r.to(name)
		return fmt.Sprintf("<= %.4g x %s (%.3g)", factor, name, got), got <= factor
	}}
}

// atLeastTimesFaster wants other to take factor times as long as we do.
func atLeastTimesFaster(other string, factor float64) bar {
	return bar{test: func(r row) (string, bool) {
		got := 1 / r.to(other)
		return fmt.Sprintf(">= %.4g x faster than %s (%.3g)", factor, other, got), got >= factor
	}}
}

// timesAsMany wants our value to be factor times that of other.
func timesAsMany(other string, factor float64) bar {
	return bar{test: func(r row) (string, bool) {
		got := r.to(other)
		return fmt.Sprintf(">= %.4g x %s (%.3g)", factor, other, got), got >= factor
	}}
}

// atLeast wants our value to be limit or more.
func atLeast(limit float64) bar {
	return bar{test: func(r row) (string, bool) { return fmt.Sprintf(">= %.4g", limit), r.values[ours] >= limit }}
}

// noMore wants our value to be limit or less.
func noMore(limit float64) bar {
	return bar{test: func(r row) (string, bool) { return fmt.Sprintf("<= %.4g", limit), r.values[ours] <= limit }}
}

// best is the other library with the smallest ratio.
func (r row) best() (name string) {
	least := math.Inf(1)
	for n, ratio := range r.ratios {
		if n != ours && n != bare && ratio < least {
			least, name = ratio, n
		}
	}
	return name
}

// to is our ratio to another contestant: of the same round where there are rounds.
func (r row) to(other string) float64 {
	if r.rounds != nil {
		return ratios(r.rounds, other)[ours]
	}
	return r.ratios[ours] / r.ratios[other]
}

// judge completes the bars.
func (r row) judge() []bar {
	var out []bar
	for _, b := range r.bars {
		if b.test != nil {
			b.says, b.met = b.test(r)
		}
		out = append(out, b)
	}
	return out
}

// cell shows a contestant's value: where there is a limit to compare with, as a
// ratio to it.
func (r row) cell(name string) string {
	v, ok := r.values[name]
	switch {
	case !ok:
		return ""
	case r.unit != "s":
		return fmt.Sprintf("%.*f", r.places, v)
	case name == r.base:
		return "1 = " + short(v)
	}
	return fmt.Sprintf("%s (%s)", digits(r.ratios[name]), short(v))
}

// digits writes a ratio with three digits, or all before the point.
func digits(ratio float64) string {
	if ratio >= 100 {
		return fmt.Sprintf("%.0f", ratio)
	}
	return fmt.Sprintf("%.3g", ratio)
}

// short writes seconds with three digits.
func short(seconds float64) string {
	switch {
	case seconds < 1e-3:
		return fmt.Sprintf("%.3g us", seconds*1e6)
	case seconds < 1:
		return fmt.Sprintf("%.3g ms", seconds*1e3)
	}
	return fmt.Sprintf("%.3g s", seconds)
}
