package main

import (
	"slices"
	"testing"

	"github.com/fencelock/fencelock/lab/evidence"
)

func TestAddRun(t *testing.T) {
	t.Parallel()
	n := evidence.Nemesis{Engine: "redis"}
	for _, line := range []string{
		"    nemesis_test.go:59: found in round 7: overlap\n",
		"    nemesis_test.go:62: seed 7: 500 holds, 23 faults, 4 findings that the page allows\n",
		"    nemesistest.go:183: 40 holds, 2 faults: map[freeze:2]; 1 losses\n",
	} {
		addRun(&n, line)
	}
	want := evidence.Nemesis{Engine: "redis", Acquisitions: 540, Faults: 25, Seed: 7}
	if n != want {
		t.Errorf("%+v, want %+v", n, want)
	}
}

func TestSoaked(t *testing.T) {
	t.Parallel()
	var got soaked
	for _, line := range []string{
		"building", "files: 20 workers, TTL 2s, seed 4, 1m15s", "", "faults             cut 2, kill 10", "acquisitions       700",
		"checked acquisitions in all: 700", "redis: 20 workers, TTL 2s, seed 5, 9s", "faults             none", "acquisitions       50",
		"files: 20 workers, TTL 2s, seed 6, 2m0s", "acquisitions       1",
	} {
		got.add(line)
	}
	want := soaked{{Engine: "redis", Seconds: 9, Acquisitions: 50, Seed: 5}, {Engine: "files", Seconds: 195, Acquisitions: 701, Faults: 12, Seed: 4}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestResult(t *testing.T) {
	t.Parallel()
	var r result
	for _, e := range [][3]string{
		{"run", "TestExam/a", ""}, {"pass", "TestExam/a", ""}, {"pass", "TestExam/a/deeper", ""}, {"skip", "TestExam/b", ""},
		{"output", "TestExam/c", "    x_test.go:1: noticed: a line\n"}, {"fail", "TestExam/c", ""}, {"fail", "TestExam", ""},
	} {
		r.add(e[0], e[1], e[2])
	}
	if r.passed != 1 || r.skipped != 1 || r.failed != 1 || r.count(": noticed") != 1 {
		t.Errorf("%+v", r)
	}
	if got := fieldBefore("x_test.go:1: 1000 sequences of calls without a difference", "sequences"); got != "1000" {
		t.Errorf("%q before sequences", got)
	}
}
