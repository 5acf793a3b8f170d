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

// bar is what a column of ours must reach.
type bar struct {
	of   string // the column, by default ours
	says string
	met  bool
	test func(r row, of string) (says string, met bool) // sets both once the row is complete
}

// onGoredis is our library on a client of go-redis.
const onGoredis = "on go-redis"

// alsoOnGoredis is the same bar for that column.
func (b bar) alsoOnGoredis() bar {
	b.of = onGoredis
	return b
}

// bestPeer stands for whichever other library did best.
const bestPeer = "best peer"

// atMost wants us to take no more than factor times what other takes.
func atMost(other string, factor float64) bar {
	return bar{test: func(r row, of string) (string, bool) {
		name := other
		if other == bestPeer {
			name = r.best()
		}
		got := r.to(of, name)
		return fmt.Sprintf("<= %.4g x %s (%.3g)", factor, name, got), got <= factor
	}}
}

// atLeastTimesFaster wants other to take factor times as long as we do.
func atLeastTimesFaster(other string, factor float64) bar {
	return bar{test: func(r row, of string) (string, bool) {
		got := 1 / r.to(of, other)
		return fmt.Sprintf(">= %.4g x faster than %s (%.3g)", factor, other, got), got >= factor
	}}
}

// timesAsMany wants our value to be factor times that of other.
func timesAsMany(other string, factor float64) bar {
	return bar{test: func(r row, of string) (string, bool) {
		got := r.to(of, other)
		return fmt.Sprintf(">= %.4g x %s (%.3g)", factor, other, got), got >= factor
	}}
}

// atLeast wants our value to be limit or more.
func atLeast(limit float64) bar {
	return bar{test: func(r row, of string) (string, bool) { return fmt.Sprintf(">= %.4g", limit), r.values[of] >= limit }}
}

// noMore wants our value to be limit or less, in the unit of the row.
func noMore(limit float64) bar {
	return bar{test: func(r row, of string) (string, bool) { return fmt.Sprintf("<= %.4g", limit), r.values[of] <= limit }}
}

// best is the other library with the smallest ratio.
func (r row) best() (name string) {
	least := math.Inf(1)
	for n, ratio := range r.ratios {
		if n != ours && n != onGoredis && n != bare && ratio < least {
			least, name = ratio, n
		}
	}
	return name
}

// to is the ratio of one contestant to another: of the same round where there are rounds.
func (r row) to(of, other string) float64 {
	if r.rounds != nil {
		return ratios(r.rounds, other)[of]
	}
	return r.ratios[of] / r.ratios[other]
}

// judge completes the bars.
func (r row) judge() []bar {
	var out []bar
	for _, b := range r.bars {
		if b.of == "" {
			b.of = ours
		}
		if b.test != nil {
			b.says, b.met = b.test(r, b.of)
		}
		if b.of != ours {
			b.says = b.of + " " + b.says
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
