package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/lab/evidence"
)

// models are the packages whose decisions the explorer drives.
var models = []struct{ name, pkg string }{{"records", "./recordlock"}, {"Redis twin", "./internal/testkit/twin"}, {"Redlock", "./internal/quorum"}}

var (
	exhausted = regexp.MustCompile(`explored (.*): (\d+) states, (\d+) steps, depth \d+, (\S+): exhausted`)
	walked    = regexp.MustCompile(`walked (.*): (\d+) walks, (\d+) steps, (\S+): no rule broken`)
)

// longWalks is how many steps walks take within each bound if the large bounds are asked for.
const longWalks = "FENCELOCK_WALK=250000000"

// explored visits the small bounds and takes random walks; if asked for, it also visits the large
// bounds, takes long walks, and lets the explorer find the mutants.
func explored(f flags) (r evidence.Report, err error) {
	var large []string
	if f.large {
		large = append(large, "FENCELOCK_SLOW=1", longWalks)
	}
	for _, m := range models {
		got, err := goTest(large, m.pkg, "^(TestExplore|TestWalk)$", "-v")
		if err != nil {
			return r, err
		}
		for _, line := range got.lines {
			if e, ok := exploredIn(line, m.name); ok {
				fmt.Print(line)
				r.Explored = append(r.Explored, e)
			}
			if w, ok := walkedIn(line, m.name); ok {
				fmt.Print(line)
				r.Walked = append(r.Walked, w)
			}
		}
		if !f.large {
			continue
		}
		got, err = goTest(large, m.pkg, "^TestExploreMutants$", "-v")
		if err != nil {
			return r, err
		}
		r.Mutants = append(r.Mutants, evidence.Mutants{Where: m.name + " and `internal/hold`, found by the explorer", Found: got.passed, Total: got.passed + got.failed})
	}
	return r, nil
}

func exploredIn(line, model string) (e evidence.Explored, ok bool) {
	f := exhausted.FindStringSubmatch(line)
	if f == nil {
		return e, false
	}
	e = evidence.Explored{Model: model, Bound: f[1], Invariants: "1-3, 5", States: number(f[2]), Steps: number(f[3]), Millis: millis(f[4])}
	switch waits := strings.Contains(e.Bound, "gets in"); {
	case model == "Redlock":
		e.Invariants = "1, 2"
	case strings.Contains(e.Bound, "loss of data"):
		e.Invariants = "2, 4"
	case model == "records" && waits:
		e.Invariants = "1-3, 5-7"
	case waits:
		e.Invariants = "1-7"
	case model != "records":
		e.Invariants = "1-5"
	}
	return e, true
}

func walkedIn(line, model string) (w evidence.Walked, ok bool) {
	f := walked.FindStringSubmatch(line)
	if f == nil {
		return w, false
	}
	return evidence.Walked{Model: model, Bound: f[1], Walks: number(f[2]), Steps: number(f[3]), Millis: millis(f[4])}, true
}

// number and millis read what a regular expression has found.
func number(digits string) int64 {
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}

func millis(text string) int64 {
	d, _ := time.ParseDuration(text)
	return d.Milliseconds()
}
