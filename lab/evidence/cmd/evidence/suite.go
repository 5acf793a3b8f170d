package main

import (
	"fmt"

	"github.com/fencelock/fencelock/lab/evidence"
)

// suites are the engines that run the conformance suite.
var suites = []struct{ subject, pkg string }{
	{"memory", "./memlock"}, {"files", "./filelock"}, {"Redis", "./redislock"}, {"Redlock", "./redlock"}, {"PostgreSQL", "./pglock"},
	{"records", "./recordlock"},
}

// mutants are the tests that must find deliberate faults: by a subtest for each, or by a line.
var mutants = []struct {
	where, pkg, run, line string
	env                   []string
}{
	{"engines, found by the conformance suite", "./driver/drivertest", "Mutants$", "", nil},
	{"Redlock's decisions, found by the simulator", "./internal/testkit/sim", "^TestMutants$", "", nil},
	{"the renewal schedule, found by its model", "./internal/schedule", "^TestMutantsOfTheScheduleAreFound$", "", nil},
	{"`recordlock`, found by its tests", "./recordlock", "^TestMutants$", "", []string{"FENCELOCK_SLOW=1"}},
	{"lines of the Redis scripts, found by the twin", "./redislock", "^TestTwinNoticesEveryChange$", ": noticed", nil},
	{"lines of the Redlock scripts, found by the twin", "./redlock", "^TestTwinsNoticeAChange$", ": noticed", nil},
}

// twins are the comparisons of scripts with their models.
var twins = []struct{ subject, pkg, run string }{
	{"Redis", "./redislock", "^TestTwin$"}, {"Redlock", "./redlock", "^TestTwins$"},
}

// suite runs the conformance suite on each engine, everything that must find mutants, and the twins.
// A test that fails is an error: the page does not show it.
func suite(flags) (r evidence.Report, err error) {
	for _, s := range suites {
		got, err := goTest(nil, s.pkg, "^TestExam$")
		if err != nil {
			return r, err
		}
		fmt.Printf("%s: %d cases pass, %d are skipped\n", s.subject, got.passed, got.skipped)
		r.Suite = append(r.Suite, evidence.Suite{Subject: s.subject, Passed: got.passed, Skipped: got.skipped, Failed: got.failed})
	}
	for _, m := range mutants {
		got, err := goTest(m.env, m.pkg, m.run)
		if err != nil {
			return r, err
		}
		found, total := got.passed, got.passed+got.failed
		if m.line != "" {
			found = got.count(m.line)
			total = found // the test fails if one is not found
		}
		fmt.Printf("%s: %d of %d mutants\n", m.where, found, total)
		r.Mutants = append(r.Mutants, evidence.Mutants{Where: m.where, Found: found, Total: total})
	}
	for _, t := range twins {
		got, err := goTest(nil, t.pkg, t.run)
		if err != nil {
			return r, err
		}
		n := 0
		for _, line := range got.lines {
			if at := fieldBefore(line, "sequences"); at != "" {
				_, _ = fmt.Sscan(at, &n)
			}
		}
		fmt.Printf("%s: %d sequences equal\n", t.subject, n)
		r.Twins = append(r.Twins, evidence.Twin{Subject: t.subject, Sequences: n})
	}
	return r, nil
}
