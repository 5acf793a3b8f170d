package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
	"unicode"
)

// report is what came of a suite.
type report struct {
	suite   suite
	version string
	load    []string // average, at the start and at the end
	rows    []row
}

func newReport(a *arena) *report {
	return &report{suite: a.suite, version: a.server.version(), load: []string{load()}}
}

// missed says which bars our column did not reach.
func (r *report) missed() []string {
	var out []string
	for _, line := range r.rows {
		for _, b := range line.judge() {
			if !b.met {
				out = append(out, line.what+": "+b.says)
			}
		}
	}
	return out
}

// table is the rows in Markdown.
func (r *report) table() string {
	var b strings.Builder
	fmt.Fprint(&b, "| |")
	for _, c := range r.suite.contestants {
		fmt.Fprintf(&b, " %s |", c.name)
	}
	fmt.Fprintf(&b, " bar for %s |\n|---|%s---|\n", ours, strings.Repeat("---:|", len(r.suite.contestants)))
	for _, line := range r.rows {
		fmt.Fprintf(&b, "| %s |", line.what)
		for _, c := range r.suite.contestants {
			fmt.Fprintf(&b, " %s |", line.cell(c.name))
		}
		var bars []string
		for _, bar := range line.judge() {
			verdict := "missed"
			if bar.met {
				verdict = "met"
			}
			bars = append(bars, bar.says+": "+verdict)
		}
		fmt.Fprintf(&b, " %s |\n", strings.Join(bars, "; "))
	}
	return b.String()
}

// values are those of each row, by what it says and contestant.
func (r *report) values() map[string]map[string]float64 {
	all := map[string]map[string]float64{}
	for _, line := range r.rows {
		if _, twice := all[line.what]; !twice { // the CPU times of all rows are called the same
			all[line.what] = line.values
		}
	}
	return all
}

// text is the report for a terminal.
func (r *report) text() string {
	return fmt.Sprintf("%s\n%s, load average %s\n", r.table(), r.version, strings.Join(r.load, " to "))
}

// section is the report as a section of the page.
func (r *report) section() string {
	return fmt.Sprintf("%s%s\n\n%s\n%s%s\n%s, %s,\nload average %s.\n", heading, r.suite.title, r.suite.notes, r.suite.pictures, r.table(), r.version,
		time.Now().Format(time.DateOnly), strings.Join(r.load, " at the start, ")+" at the end")
}

// heading begins a section.
const heading = "## "

// page is the page that the reports make, with the sections of an older page
// about the other suites.
func page(old string, reports []*report, s settings) string {
	known := map[string]string{} // by title
	for text := range strings.SplitSeq("\n"+old, "\n"+heading) {
		title, _, _ := strings.Cut(text, "\n")
		known[title] = heading + strings.TrimRight(text, "\n") + "\n"
	}
	for _, r := range reports {
		known[r.suite.title] = r.section()
	}
	var sections strings.Builder
	for _, suite := range outside() {
		if text, ok := known[suite.title]; ok {
			sections.WriteString("\n" + text)
		}
	}
	var contents strings.Builder
	for _, suite := range outside() {
		if _, ok := known[suite.title]; ok {
			fmt.Fprintf(&contents, "- [%s](#%s)\n", suite.title, anchor(suite.title))
		}
	}
	return fmt.Sprintf(`# Results of the benchmarks

All rows, with the bars that a change of fencelock should not break. `+"`make bench`"+`
(`+"`go run -C lab ./bench`"+`) writes this page: change the program in `+"`lab/bench/`"+`, not the page.
[docs/benchmarks.md](../../docs/benchmarks.md) has what a reader needs of them.

%s- [Machine and versions](#machine-and-versions)

The contestants of an engine use the same private server, in one run of %d interleaved rounds. A
round has many short turns of each contestant, in rotating order. A value is a median over rounds,
and a ratio is the median of the ratios within each round. Compare the ratios: the absolute times
are from one machine on one day. `+"`bare`"+` is the lower limit: the engine without a library. Every
lease is %v unless a section says otherwise. Rows about contenders for one name are medians of %d
rounds that last seconds. Rows about idle waiters, many names and the first request after a fault
are one run each. Commands are counted by the server.

![fencelock and other libraries on one Redis, as bars](../../docs/pictures/benchmarks.svg)
%s
## Machine and versions

%s`, contents.String(), s.rounds, ttl, (s.rounds+4)/5, sections.String(), versions())
}

// anchor is the link to a heading, as GitHub makes it.
func anchor(title string) string {
	keep := func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}
	return strings.Map(keep, title)
}

// versions lists what was measured, on what and when.
func versions() string {
	var b strings.Builder
	fmt.Fprintf(&b, "- %s, %d cores, %s/%s\n", processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	fmt.Fprintf(&b, "- %s\n", runtime.Version())
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b.String()
	}
	for _, m := range info.Deps {
		for _, peer := range []string{"go-redsync/redsync", "bsm/redislock", "redis/rueidis", "redis/go-redis", "jackc/pgx"} {
			if strings.Contains(m.Path, peer) {
				fmt.Fprintf(&b, "- %s %s\n", m.Path, m.Version)
			}
		}
	}
	return b.String()
}

// processor is the name of this machine's processor, where it can be had.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimLeft(strings.TrimSpace(name), ": ")
		}
	}
	return "unknown processor"
}

// load is the load average of the last minute, where it can be had.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	if first == "" {
		return "unknown"
	}
	return first
}
