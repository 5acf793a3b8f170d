package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/lab/evidence"
)

// models are the packages whose decisions the explorer drives, and the invariants that it checks: usually,
// if a waiter must get in, and if the server loses its data.
var models = []struct{ name, pkg, usual, fair, lossy string }{
	{"records", "./recordlock", "1-3, 5", "1-3, 5-7", ""},
	{"Redis twin", "./internal/testkit/twin", "1-5", "1-7", "2, 4"},
	{"Redlock", "./internal/quorum", "1, 2", "", ""},
}

var visited = regexp.MustCompile(`(explored|walked) (.*): (\d+) (?:states|walks), (\d+) steps, (\S+): (?:exhausted|no rule broken)`)

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
			v := visited.FindStringSubmatch(line)
			if v == nil {
				continue
			}
			fmt.Print(line)
			bound, n, steps := v[2], number(v[3]), number(v[4])
			took, _ := time.ParseDuration(v[5])
			if v[1] == "walked" {
				r.Walked = append(r.Walked, evidence.Walked{Model: m.name, Bound: bound, Walks: n, Steps: steps, Millis: took.Milliseconds()})
				continue
			}
			invariants := m.usual
			switch {
			case strings.Contains(bound, "gets in"):
				invariants = m.fair
			case strings.Contains(bound, "loss of data"):
				invariants = m.lossy
			}
			r.Explored = append(r.Explored, evidence.Explored{Model: m.name, Bound: bound, States: n, Steps: steps, Invariants: invariants, Millis: took.Milliseconds()})
		}
		if !f.large {
			continue
		}
		if got, err = goTest(large, m.pkg, "^TestExploreMutants$", "-v"); err != nil {
			return r, err
		}
		r.Mutants = append(r.Mutants, evidence.Mutants{Where: m.name + " and `internal/hold`, found by the explorer", Found: got.passed, Total: got.passed + got.failed})
	}
	return r, nil
}

// number reads what a regular expression has found.
func number(digits string) int64 {
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}
