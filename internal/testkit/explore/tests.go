package explore

import (
	"os"
	"strconv"
	"testing"
)

// Walked is the environment variable with how many steps Roam takes within each of the bounds.
const Walked = "FENCELOCK_WALK"

// slow reports whether the run may take long.
func slow() bool { return os.Getenv("FENCELOCK_SLOW") != "" }

// withoutRace skips a test if the race detector is on, which makes an exploration ten times as slow.
func withoutRace(t *testing.T) {
	t.Helper()
	if race {
		t.Skip("runs without the race detector")
	}
}

// Exhaust fails unless every state within each of the bounds keeps the rules.
func Exhaust[S State[S]](t *testing.T, all []Bounds, model func(Bounds) Model[S]) {
	t.Helper()
	withoutRace(t)
	for _, b := range all {
		t.Run(b.Name, func(t *testing.T) {
			if b.Slow && !slow() {
				t.Skip("takes minutes: make explore runs it")
			}
			m := model(b)
			m.report(t, "explored "+b.Name, Run(m, 2))
		})
	}
}

// Roam fails if random walks within any of the bounds break a rule. They take some steps in each run,
// and more if the environment variable Walked says so.
func Roam[S State[S]](t *testing.T, all []Bounds, model func(Bounds) Model[S]) {
	t.Helper()
	withoutRace(t)
	steps, err := strconv.ParseInt(os.Getenv(Walked), 10, 64)
	if err != nil {
		steps = 100_000
	}
	for _, b := range all {
		m := model(b)
		m.report(t, "walked "+b.Name, Walk(m, 1, steps, 2))
	}
}

// report fails unless a run or walks have done all that they were asked for.
func (m Model[S]) report(t *testing.T, what string, r Result) {
	t.Helper()
	t.Logf("%s: %v", what, r)
	if !r.Complete {
		t.Error(m.Timeline(r.Trace))
	}
}

// CheckKeys checks the key of the models.
func CheckKeys[S State[S]](t *testing.T, all []Bounds, model func(Bounds) Model[S]) {
	t.Helper()
	withoutRace(t)
	for _, b := range all {
		keys, err := CheckKey(model(b), 10_000)
		if err != nil {
			t.Errorf("%s: %v", b.Name, err)
		}
		t.Logf("%s: %d keys", b.Name, keys)
	}
}

// MustBreak fails unless a run or walks have broken a rule, a run after a few steps.
func MustBreak(t *testing.T, r Result) {
	t.Helper()
	if r.Broken == "" || r.Walks == 0 && len(r.Trace) > longest {
		t.Errorf("%v, want a broken rule after %d steps at most", r, longest)
	}
}

// HuntWithin explores the bounds that a mutant of Hunt names, and fails if a rule is broken after a few
// steps. Without bounds it skips the test, which is TestExploreHunt.
func HuntWithin[S State[S]](t *testing.T, hunts map[string]Bounds, model func(Bounds) Model[S]) {
	t.Helper()
	b, asked := hunts[os.Getenv(Hunted)]
	if !asked {
		t.Skip("it is for TestExploreMutants")
	}
	m := model(b)
	if r := Run(m, 2); r.Broken != "" && len(r.Trace) <= longest {
		t.Errorf("%v\n%s", r, m.Timeline(r.Trace))
	}
}
