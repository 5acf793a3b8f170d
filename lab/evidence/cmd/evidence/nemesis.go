package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/fencelock/fencelock/lab/evidence"
)

// engines are the kinds of servers on which the nemesis injects faults.
var engines = []string{"files", "redis", "redlock", "postgres", "mariadb", "sentinel-quarantine", "cluster"}

// nemeses runs the nemesis on each engine, or on one, and keeps what the file has of the others.
func nemeses(f flags) (r evidence.Report, err error) {
	chosen := engines
	if f.engine != "" {
		chosen = []string{f.engine}
		old, err := evidence.Read(filepath.Join(evidence.Dir, "nemesis.json"))
		if err != nil {
			return r, err
		}
		for _, n := range old.Nemesis {
			if n.Engine != f.engine {
				r.Nemesis = append(r.Nemesis, n)
			}
		}
	}
	for _, engine := range chosen {
		begun := time.Now()
		got, err := goTest(nil, "./cmd/internal/nemesis", "^TestNemesis$/^"+engine+"$", "-v", "-args", "-nemesis.for="+f.length.String())
		if err != nil {
			return r, err
		}
		n := evidence.Nemesis{Engine: engine, Seconds: int64(time.Since(begun).Seconds())}
		for _, line := range got.lines {
			addRun(&n, line)
		}
		if n.Acquisitions == 0 {
			return r, fmt.Errorf("the nemesis on %s reported no run", engine)
		}
		fmt.Printf("%s: %d acquisitions, %d faults, %d violations\n", engine, n.Acquisitions, n.Faults, n.Violations)
		r.Nemesis = append(r.Nemesis, n)
	}
	return r, nil
}

// addRun adds what the nemesis logs of a run, in which a violation fails the test:
//
//	seed 7: 812 holds, 20 faults, 0 findings that the page allows
func addRun(n *evidence.Nemesis, line string) {
	_, text, ok := strings.Cut(line, ": seed ")
	if !ok {
		return
	}
	var seed uint64
	var holds, faults int64
	if _, err := fmt.Sscanf(text, "%d: %d holds, %d faults", &seed, &holds, &faults); err != nil {
		return
	}
	if n.Seed == 0 {
		n.Seed = seed
	}
	n.Acquisitions += holds
	n.Faults += faults
}

// fieldBefore returns the word of a line that stands before another one, or "".
func fieldBefore(line, word string) string {
	before := ""
	for field := range strings.FieldsSeq(line) {
		if field == word {
			return before
		}
		before = field
	}
	return ""
}
