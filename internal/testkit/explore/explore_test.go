package explore_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/testkit/explore"
)

// litres are in jugs of 3 and 5 litres.
type litres = *[2]int

// jugs is a puzzle with a known shortest answer: one has 4 litres after 6 steps.
func jugs(key func(s litres, k *explore.Key)) explore.Model[litres] {
	both := func(litres) int { return 2 }
	most := [2]int{3, 5}
	return explore.Model[litres]{
		Init: &[2]int{},
		Copy: func(s litres) litres { n := *s; return &n },
		Steps: []explore.Step[litres]{
			{Name: "fill #", Of: both, Then: func(s litres, i int) { s[i] = most[i] }},
			{Name: "empty #", Of: both, Then: func(s litres, i int) { s[i] = 0 }},
			{Name: "pour #", Of: both, Then: func(s litres, i int) {
				n := min(s[i], most[1-i]-s[1-i])
				s[i], s[1-i] = s[i]-n, s[1-i]+n
			}},
		},
		Key:   key,
		Check: func(s litres) string { return map[bool]string{true: "four"}[s[1] == 4] },
		Show:  func(s litres) string { return "litres" },
		Limit: 1000,
	}
}

func whole(s litres, k *explore.Key) { k.Num(int64(s[0]), int64(s[1])) }

func TestShortestTrace(t *testing.T) {
	for workers := range 3 {
		m := jugs(whole)
		r := explore.Run(m, workers+1)
		if r.Broken != "four" || len(r.Trace) != 6 {
			t.Errorf("%d workers: %v", workers+1, r)
		}
		var out strings.Builder
		explore.Print(&out, m, r.Trace)
		if n := strings.Count(out.String(), "litres"); n != 6 {
			t.Errorf("printed %d steps:\n%s", n, out.String())
		}
	}
}

func TestWalk(t *testing.T) {
	m := jugs(whole)
	w := explore.Walk(m, 1, 1_000_000, 2)
	if w.Broken != "four" || w.Walks == 0 {
		t.Fatalf("%v, want a walk that meets four litres", w)
	}
	var out strings.Builder
	explore.Print(&out, m, w.Trace)
	if n := strings.Count(out.String(), "litres"); n != len(w.Trace) {
		t.Errorf("printed %d steps of %d", n, len(w.Trace))
	}
	if again := explore.Walk(m, w.Seed, 1, 1); !slices.Equal(again.Trace, w.Trace) {
		t.Errorf("seed %d leads to %v, then to %v", w.Seed, w, again)
	}
	m.Check = func(litres) string { return "" }
	if w := explore.Walk(m, 1, 10_000, 2); w.Broken != "" || w.Steps < 10_000 {
		t.Errorf("%v, want 10,000 steps", w)
	}
}

func TestExhausts(t *testing.T) {
	m := jugs(whole)
	m.Check = func(litres) string { return "" }
	if r := explore.Run(m, 2); !r.Complete || r.States != 16 {
		t.Errorf("%v, want 16 states", r)
	}
}

func TestCheckKey(t *testing.T) {
	if states, keys, err := explore.CheckKey(jugs(whole)); err != nil || states != 16 || keys != 16 {
		t.Errorf("%d states, %d keys, %v", states, keys, err)
	}
	merges := func(s litres, k *explore.Key) { k.Num(int64(s[0])) }
	if _, _, err := explore.CheckKey(jugs(merges)); err == nil {
		t.Error("a key that merges states with different futures passes")
	}
}

func TestWhole(t *testing.T) {
	type state struct {
		name string
		next *state
		set  map[string]int
	}
	a := func() *state {
		s := &state{name: "a", set: map[string]int{"x": 1, "y": 2}}
		s.next = s
		return s
	}
	one, two := a(), a()
	if !slices.Equal(explore.Whole(one, nil), explore.Whole(two, nil)) {
		t.Error("equal states differ")
	}
	for _, change := range []func(){func() { two.name = "b" }, func() { two.set["x"] = 3 }, func() { two.next = a() }} {
		two = a()
		if change(); slices.Equal(explore.Whole(one, nil), explore.Whole(two, nil)) {
			t.Error("different states are equal")
		}
	}
}
