package explore

import (
	"os"
	"strings"
	"testing"
)

// slow reports whether the run may take long.
func slow() bool { return os.Getenv("FENCELOCK_SLOW") != "" }

// Exhaust fails unless every state within each of the bounds keeps the rules.
func Exhaust[S any](t *testing.T, all []Bounds, model func(Bounds) Model[S]) {
	t.Helper()
	for _, b := range all {
		t.Run(b.Name, func(t *testing.T) {
			if Race || b.Slow && !slow() {
				t.Skip("takes minutes: make test explores small bounds without the race detector, make explore large ones")
			}
			m := model(b)
			r := Run(m, 2)
			t.Logf("explored %s: %v", b.Name, r)
			if !r.Complete {
				t.Errorf("%v\n%s", r, timeline(m, r.Trace))
			}
		})
	}
}

// CheckKeys compares the key of the models with whole states.
func CheckKeys[S any](t *testing.T, all []Bounds, model func(Bounds) Model[S]) {
	t.Helper()
	if Race {
		t.Skip("runs without the race detector")
	}
	for _, b := range all {
		m := model(b)
		m.Limit = 3000
		if slow() {
			m.Limit = 30_000
		}
		states, keys, err := CheckKey(m)
		if err != nil {
			t.Errorf("%s: %v", b.Name, err)
		}
		t.Logf("%s: %d states, %d keys", b.Name, states, keys)
	}
}

// MustBreak fails unless a model breaks a rule after a few steps.
func MustBreak[S any](t *testing.T, m Model[S]) {
	t.Helper()
	if r := Run(m, 2); r.Broken == "" || len(r.Trace) > longest {
		t.Errorf("%v, want a broken rule after %d steps at most", r, longest)
	}
}

// HuntWithin explores the bounds that a mutant of Hunt names. Without one it skips the test, which is
// TestExploreHunt.
func HuntWithin[S any](t *testing.T, hunts map[string]Bounds, model func(Bounds) Model[S]) {
	t.Helper()
	b, asked := hunts[os.Getenv(Hunted)]
	if !asked {
		t.Skip("it is for TestExploreMutants")
	}
	m := model(b)
	if r := Run(m, 2); r.Broken != "" {
		t.Errorf("%v\n%s", r, timeline(m, r.Trace))
	}
}

// timeline returns the trace of a result, line by line.
func timeline[S any](m Model[S], trace []Action) string {
	var out strings.Builder
	Print(&out, m, trace)
	return out.String()
}
