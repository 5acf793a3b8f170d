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
var models = []struct{ name, pkg string }{{"records", "./recordlock"}, {"Redis twin", "./internal/testkit/twin"}}

var exhausted = regexp.MustCompile(`explored (.*): (\d+) states, (\d+) steps, depth \d+, (\S+): exhausted`)

// explored visits the small bounds; if asked for, also the large ones, and lets the explorer find the
// mutants.
func explored(f flags) (r evidence.Report, err error) {
	var large []string
	if f.large {
		large = append(large, "FENCELOCK_SLOW=1")
	}
	for _, m := range models {
		got, err := goTest(large, m.pkg, "^TestExplore$", "-v")
		if err != nil {
			return r, err
		}
		for _, line := range got.lines {
			f := exhausted.FindStringSubmatch(line)
			if f == nil {
				continue
			}
			e := evidence.Explored{Model: m.name, Bound: f[1], Invariants: "1 to 5"}
			e.States, _ = strconv.ParseInt(f[2], 10, 64)
			e.Steps, _ = strconv.ParseInt(f[3], 10, 64)
			took, _ := time.ParseDuration(f[4])
			e.Millis = took.Milliseconds()
			switch {
			case strings.Contains(e.Bound, "gets in"):
				e.Invariants = "1 to 7"
			case strings.Contains(e.Bound, "loss of data"):
				e.Invariants = "2, 4"
			}
			fmt.Print(line)
			r.Explored = append(r.Explored, e)
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
