package explore_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/testkit/explore"
)

// jugs are a puzzle with a known shortest answer: of jugs of 3 and 5 litres, one has 4 litres after 6 steps.
type jugs struct {
	explore.World[int]
	litres [2]int
	free   bool // four litres are no answer
	merges bool // the key forgets a jug
}

func (j *jugs) Copy() *jugs { n := *j; return &n }

func (j *jugs) Look() {}

func (j *jugs) Key(k *explore.Key) {
	if k.Num(int64(j.litres[0])); !j.merges {
		k.Num(int64(j.litres[1]))
	}
}

func (j *jugs) Check() string {
	if j.litres[1] == 4 && !j.free {
		return "four"
	}
	return ""
}

func (j *jugs) Show() string { return "litres" }

func puzzle(j jugs) explore.Model[*jugs] {
	both := func(*jugs) int { return 2 }
	most := [2]int{3, 5}
	return explore.Model[*jugs]{Init: &j, Limit: 1000, Steps: []explore.Step[*jugs]{
		{Name: "fill #", Of: both, Then: func(j *jugs, i int) { j.litres[i] = most[i] }},
		{Name: "empty #", Of: both, Then: func(j *jugs, i int) { j.litres[i] = 0 }},
		{Name: "pour #", Of: both, Then: func(j *jugs, i int) {
			n := min(j.litres[i], most[1-i]-j.litres[1-i])
			j.litres[i], j.litres[1-i] = j.litres[i]-n, j.litres[1-i]+n
		}},
	}}
}

func TestShortestTrace(t *testing.T) {
	for workers := range 3 {
		m := puzzle(jugs{})
		r := explore.Run(m, workers+1)
		if r.Broken != "four" || len(r.Trace) != 6 {
			t.Errorf("%d workers: %v", workers+1, r)
		}
		if text := m.Timeline(r.Trace); strings.Count(text, "litres") != 6 {
			t.Errorf("not 6 steps:\n%s", text)
		}
	}
}

func TestWalk(t *testing.T) {
	m := puzzle(jugs{})
	w := explore.Walk(m, 1, 1_000_000, 2)
	if w.Broken != "four" || w.Walks == 0 {
		t.Fatalf("%v, want a walk that meets four litres", w)
	}
	if text := m.Timeline(w.Trace); strings.Count(text, "litres") != len(w.Trace) {
		t.Errorf("not %d steps:\n%s", len(w.Trace), text)
	}
	if again := explore.Walk(m, w.Seed, 1, 1); !slices.Equal(again.Trace, w.Trace) {
		t.Errorf("seed %d leads to %v, then to %v", w.Seed, w, again)
	}
	if w := explore.Walk(puzzle(jugs{free: true}), 1, 10_000, 2); w.Broken != "" || w.Steps < 10_000 {
		t.Errorf("%v, want 10,000 steps", w)
	}
}

func TestExhausts(t *testing.T) {
	if r := explore.Run(puzzle(jugs{free: true}), 2); !r.Complete || r.States != 16 {
		t.Errorf("%v, want 16 states", r)
	}
}

func TestCheckKey(t *testing.T) {
	if keys, err := explore.CheckKey(puzzle(jugs{free: true}), 100_000); err != nil || keys != 16 {
		t.Errorf("%d keys, %v", keys, err)
	}
	if _, err := explore.CheckKey(puzzle(jugs{free: true, merges: true}), 1000); err == nil {
		t.Error("a key that merges states with different futures passes")
	}
}
