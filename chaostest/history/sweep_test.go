package history_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
)

// grant is an exclusive acquisition of one name, in seconds.
func grant(token int64, called, returned, until int) history.Acquisition {
	return history.Acquisition{Name: "n", ID: fmt.Sprint(token), Worker: "w", Token: token,
		Called: time.Duration(called) * time.Second, Returned: time.Duration(returned) * time.Second, Until: time.Duration(until) * time.Second}
}

// judge returns the violations of acquisitions.
func judge(all []history.Acquisition) []history.Violation {
	h := &history.History{Acquisitions: all}
	h.Judge(history.Rules{})
	return h.Violations
}

func share(g history.Acquisition, limit int) history.Acquisition {
	g.Shared, g.Limit = true, limit
	return g
}

func other(g history.Acquisition) history.Acquisition {
	g.Name = "other"
	return g
}

func TestSweep(t *testing.T) {
	for name, c := range map[string]struct {
		history []history.Acquisition
		want    string // what the only error says; empty for none
	}{
		"nothing":                  {},
		"one after the other":      {history: []history.Acquisition{grant(1, 0, 1, 3), grant(2, 0, 3, 4)}},
		"at once":                  {history: []history.Acquisition{grant(1, 0, 1, 3), grant(2, 0, 2, 4)}, want: "both held n"},
		"inside a long one":        {history: []history.Acquisition{grant(1, 0, 1, 9), share(grant(2, 0, 2, 3), 0)}, want: "both held n"},
		"other names":              {history: []history.Acquisition{grant(1, 0, 1, 3), other(grant(1, 0, 2, 4))}},
		"shared at once":           {history: []history.Acquisition{share(grant(1, 0, 1, 3), 0), share(grant(2, 0, 2, 4), 0)}},
		"exclusive among shared":   {history: []history.Acquisition{share(grant(1, 0, 1, 5), 0), share(grant(2, 0, 2, 3), 0), grant(3, 0, 4, 6)}, want: "both held n"},
		"within the limit":         {history: []history.Acquisition{share(grant(1, 0, 1, 3), 2), share(grant(2, 0, 2, 4), 2), share(grant(3, 0, 3, 5), 2)}},
		"above the limit":          {history: []history.Acquisition{share(grant(1, 0, 1, 3), 2), share(grant(2, 0, 1, 4), 2), share(grant(3, 0, 2, 5), 2)}, want: "the limit is 2"},
		"the same token":           {history: []history.Acquisition{grant(1, 0, 1, 2), grant(1, 0, 3, 4)}, want: "a token that is not greater"},
		"a smaller token":          {history: []history.Acquisition{grant(2, 0, 1, 2), grant(1, 0, 3, 4)}, want: "a token that is not greater"},
		"smaller after shared":     {history: []history.Acquisition{share(grant(2, 0, 1, 2), 0), grant(1, 0, 3, 4)}, want: "a token that is not greater"},
		"received too late":        {history: []history.Acquisition{grant(2, 0, 1, 9), grant(1, 0, 5, 0)}},
		"shared in any order":      {history: []history.Acquisition{share(grant(2, 0, 1, 9), 0), share(grant(1, 0, 3, 9), 0)}},
		"shared, one called later": {history: []history.Acquisition{share(grant(2, 0, 1, 9), 0), share(grant(1, 2, 3, 9), 0)}, want: "a token that is not greater"},
	} {
		t.Run(name, func(t *testing.T) {
			found := judge(c.history)
			switch {
			case c.want == "" && len(found) > 0:
				t.Errorf("a good history: %v", found)
			case c.want != "" && (len(found) != 1 || !strings.Contains(found[0].Text, c.want)):
				t.Errorf("%v, want one error with %q", found, c.want)
			}
		})
	}
}

// TestSweepLikePairs compares the sweep with looking at every pair.
func TestSweepLikePairs(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	bad := 0
	for range 2000 {
		var all []history.Acquisition
		for range 1 + rng.IntN(6) {
			called := rng.IntN(20)
			returned := called + rng.IntN(4)
			g := grant(rng.Int64N(8), called, returned, returned+rng.IntN(5))
			if rng.IntN(2) == 0 {
				g = share(g, 0)
			}
			g.Returned += time.Duration(len(all)) // no two at the same time
			g.Until += time.Duration(len(all))
			all = append(all, g)
		}
		want := pairs(all)
		if got := len(judge(all)) > 0; got != want {
			t.Fatalf("the sweep says %v, pairs say %v: %v", judge(all), want, all)
		}
		if want {
			bad++
		}
	}
	if bad == 0 || bad == 2000 {
		t.Errorf("%d of 2000 histories are bad: the comparison shows nothing", bad)
	}
}

// TestSearchLikeSweep compares the search for a linearization with the sweep, which needs none. With
// limits the search finds more: a holder counts from its grant, which may be before acquire returns.
func TestSearchLikeSweep(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	bad := 0
	for range 2000 {
		var all []history.Acquisition
		limit := rng.IntN(3)
		for i := range 1 + rng.IntN(6) {
			called := rng.IntN(20)
			returned := called + 1 + rng.IntN(4)
			g := grant(int64(i+1), called, returned, returned+1+rng.IntN(4))
			if rng.IntN(2) == 0 {
				g = share(g, limit)
			}
			g.Called += time.Duration(i)
			g.Returned += time.Duration(i)
			g.Until += time.Duration(i)
			all = append(all, g)
		}
		found := judge(all)
		illegal, decided := history.SearchAlone(all)
		if !decided {
			t.Fatalf("undecided: %v", all)
		}
		if len(found) > 0 != illegal && (limit == 0 || !illegal) {
			t.Fatalf("the sweep finds %v, the search %v: %v", found, illegal, all)
		}
		if illegal {
			bad++
		}
	}
	if bad == 0 || bad == 2000 {
		t.Errorf("%d of 2000 histories are bad: the comparison shows nothing", bad)
	}
}

func pairs(all []history.Acquisition) bool {
	for i, a := range all {
		for j, b := range all {
			if i == j || a.Returned > b.Returned {
				continue
			}
			excluded := !a.Shared || !b.Shared
			if excluded && a.Until > b.Returned || b.Token <= a.Token && (excluded || a.Returned < b.Called) {
				return true
			}
		}
	}
	return false
}

// TestSweepNamesBoth: a violation says which two acquisitions it is about.
func TestSweepNamesBoth(t *testing.T) {
	first, second := grant(1, 0, 1, 3), grant(2, 0, 2, 4)
	found := judge([]history.Acquisition{second, first})
	if len(found) != 1 || found[0].Before != first.ID || found[0].After != second.ID || found[0].Rule != history.Overlap {
		t.Errorf("%#v", found)
	}
}
