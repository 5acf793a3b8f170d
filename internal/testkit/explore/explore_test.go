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
func jugs(key func(s litres, b []byte) []byte) explore.Model[litres] {
	return explore.Model[litres]{
		Init: &[2]int{},
		Copy: func(s litres) litres { n := *s; return &n },
		Next: func(s litres, emit func(explore.Action, func(litres))) {
			most := [2]int{3, 5}
			for i := range s {
				full, empty, poured := *s, *s, *s
				full[i], empty[i] = most[i], 0
				n := min(s[i], most[1-i]-s[1-i])
				poured[i], poured[1-i] = s[i]-n, s[1-i]+n
				for k, n := range [][2]int{full, empty, poured} {
					emit(explore.Action{Kind: uint8(k), Who: uint8(i)}, func(s litres) { *s = n })
				}
			}
		},
		Key:   key,
		Check: func(s litres) string { return map[bool]string{true: "four"}[s[1] == 4] },
		Show:  func(s litres, a explore.Action) string { return "step" },
		Limit: 1000,
	}
}

func whole(s litres, b []byte) []byte { return append(b, byte(s[0]), byte(s[1])) }

func TestShortestTrace(t *testing.T) {
	for workers := range 3 {
		m := jugs(whole)
		r := explore.Run(m, workers+1)
		if r.Broken != "four" || len(r.Trace) != 6 {
			t.Errorf("%d workers: %v", workers+1, r)
		}
		var out strings.Builder
		explore.Print(&out, m, r.Trace)
		if n := strings.Count(out.String(), "step"); n != 6 {
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
	if n := strings.Count(out.String(), "step"); n != len(w.Trace) {
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
	merges := func(s litres, b []byte) []byte { return append(b, byte(s[0])) }
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
