//go:build unix

package chaos

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// faultsUpTo returns n faults that can be told apart.
func faultsUpTo(n int) (all []Fault) {
	for i := range n {
		all = append(all, Fault{What: kill, from: time.Duration(i)})
	}
	return all
}

// needs is a replay that finds the violation if all of some faults are among those given.
func needs(those ...time.Duration) func([]Fault) (again bool) {
	return func(faults []Fault) (again bool) {
		for _, from := range those {
			if !slices.ContainsFunc(faults, func(f Fault) bool { return f.from == from }) {
				return false
			}
		}
		return true
	}
}

func TestShrinkKeepsWhatIsNeeded(t *testing.T) {
	t.Parallel()
	for _, those := range [][]time.Duration{{}, {0}, {11}, {4}, {3, 4}, {2, 9}} {
		s := shrink(t.Context(), faultsUpTo(12), needs(those...))
		var kept []time.Duration
		for _, f := range s.Faults {
			kept = append(kept, f.from)
		}
		if !slices.Equal(kept, those) || s.Again == 0 || s.Replays > mostReplays {
			t.Errorf("of 12 faults, of which %v are needed, it kept %v after %d replays", those, kept, s.Replays)
		}
	}
}

// TestShrinkEnds: a violation that does not occur again keeps its faults, and no search is longer
// than its limit.
func TestShrinkEnds(t *testing.T) {
	t.Parallel()
	if s := shrink(t.Context(), faultsUpTo(5), needs(99)); len(s.Faults) != 5 || s.Again != 0 || s.Replays != replaySearch {
		t.Errorf("never again: %+v", s)
	}
	var all []time.Duration
	for i := range 100 {
		all = append(all, time.Duration(i))
	}
	if s := shrink(t.Context(), faultsUpTo(100), needs(all...)); len(s.Faults) != 100 || s.Again != 1 || s.Replays != mostReplays {
		t.Errorf("all are needed: %d faults after %d replays", len(s.Faults), s.Replays)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if s := shrink(ended, faultsUpTo(100), needs()); s.Replays != 0 {
		t.Errorf("it went on after the end: %+v", s)
	}
}

// TestPlanFollowsFromItsSeed: a longer round begins as a shorter one does.
func TestPlanFollowsFromItsSeed(t *testing.T) {
	t.Parallel()
	pace := tempo{ttl: time.Second, gap: time.Second / 5, rest: time.Second}
	of := func(seed uint64, length time.Duration) []Fault {
		return plan(rand.New(rand.NewPCG(seed, 0)), kinds["redis"].safe, 5, 1, length, pace)
	}
	long, short := of(7, 20*time.Second), of(7, 10*time.Second)
	if len(short) < 10 || slices.Equal(short, of(8, 10*time.Second)) {
		t.Fatalf("%d faults, which other seeds have too", len(short))
	}
	for _, f := range short {
		if !slices.Contains(long, f) {
			t.Errorf("the longer round lacks %v", f)
		}
	}
}

// TestGuardRefusesOldTokens: a guard numbers the writes that it accepts, and refuses tokens that are
// smaller than the last one, unless it is broken.
func TestGuardRefusesOldTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		token   int64
		broken  bool
		count   int64
		refused bool
	}{
		{5, false, 1, false}, {5, false, 2, false}, {7, false, 3, false},
		{6, false, 0, true}, {6, true, 4, false}, {6, false, 5, false},
	} {
		if count, refused, err := countUp(dir, "a/name", c.token, c.broken); count != c.count || refused != c.refused || err != nil {
			t.Errorf("token %d: %d, %t, %v; want %d, %t", c.token, count, refused, err, c.count, c.refused)
		}
	}
}
