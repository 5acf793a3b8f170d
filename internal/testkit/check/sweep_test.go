package check_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/check"
)

// grant is an exclusive acquisition of one name, in seconds.
func grant(token int64, called, returned, until int) check.Grant {
	return check.Grant{Name: "n", Holder: fmt.Sprint(token), Token: token,
		Called: time.Duration(called) * time.Second, Returned: time.Duration(returned) * time.Second, Until: time.Duration(until) * time.Second}
}

func share(g check.Grant, limit int) check.Grant {
	g.Shared, g.Limit = true, limit
	return g
}

func other(g check.Grant) check.Grant {
	g.Name = "other"
	return g
}

func TestSweep(t *testing.T) {
	for name, c := range map[string]struct {
		history []check.Grant
		want    string // what the only error says; empty for none
	}{
		"nothing":                  {},
		"one after the other":      {history: []check.Grant{grant(1, 0, 1, 3), grant(2, 0, 3, 4)}},
		"at once":                  {history: []check.Grant{grant(1, 0, 1, 3), grant(2, 0, 2, 4)}, want: "held at once"},
		"inside a long one":        {history: []check.Grant{grant(1, 0, 1, 9), share(grant(2, 0, 2, 3), 0)}, want: "held at once"},
		"other names":              {history: []check.Grant{grant(1, 0, 1, 3), other(grant(1, 0, 2, 4))}},
		"shared at once":           {history: []check.Grant{share(grant(1, 0, 1, 3), 0), share(grant(2, 0, 2, 4), 0)}},
		"exclusive among shared":   {history: []check.Grant{share(grant(1, 0, 1, 5), 0), share(grant(2, 0, 2, 3), 0), grant(3, 0, 4, 6)}, want: "held at once"},
		"within the limit":         {history: []check.Grant{share(grant(1, 0, 1, 3), 2), share(grant(2, 0, 2, 4), 2), share(grant(3, 0, 3, 5), 2)}},
		"above the limit":          {history: []check.Grant{share(grant(1, 0, 1, 3), 2), share(grant(2, 0, 1, 4), 2), share(grant(3, 0, 2, 5), 2)}, want: "the limit is 2"},
		"the same token":           {history: []check.Grant{grant(1, 0, 1, 2), grant(1, 0, 3, 4)}, want: "token not greater"},
		"a smaller token":          {history: []check.Grant{grant(2, 0, 1, 2), grant(1, 0, 3, 4)}, want: "token not greater"},
		"smaller after shared":     {history: []check.Grant{share(grant(2, 0, 1, 2), 0), grant(1, 0, 3, 4)}, want: "token not greater"},
		"shared in any order":      {history: []check.Grant{share(grant(2, 0, 1, 9), 0), share(grant(1, 0, 3, 9), 0)}},
		"shared, one called later": {history: []check.Grant{share(grant(2, 0, 1, 9), 0), share(grant(1, 2, 3, 9), 0)}, want: "token not greater"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := check.Sweep(c.history)
			switch {
			case c.want == "" && len(errs) > 0:
				t.Errorf("a good history: %v", errs)
			case c.want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), c.want)):
				t.Errorf("%v, want one error with %q", errs, c.want)
			}
		})
	}
}

// TestSweepLikePairs compares the sweep with looking at every pair.
func TestSweepLikePairs(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	bad := 0
	for range 2000 {
		var history []check.Grant
		for range 1 + rng.IntN(6) {
			called := rng.IntN(20)
			returned := called + rng.IntN(4)
			g := grant(rng.Int64N(8), called, returned, returned+rng.IntN(5))
			if rng.IntN(2) == 0 {
				g = share(g, 0)
			}
			g.Returned += time.Duration(len(history)) // no two at the same time
			g.Until += time.Duration(len(history))
			history = append(history, g)
		}
		want := pairs(history)
		if got := len(check.Sweep(history)) > 0; got != want {
			t.Fatalf("the sweep says %v, pairs say %v: %v", check.Sweep(history), want, history)
		}
		if want {
			bad++
		}
	}
	if bad == 0 || bad == 2000 {
		t.Errorf("%d of 2000 histories are bad: the comparison shows nothing", bad)
	}
}

func pairs(history []check.Grant) bool {
	for i, a := range history {
		for j, b := range history {
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
	for _, err := range check.Sweep([]check.Grant{second, first}) {
		if v, ok := err.(*check.Violation); !ok || v.Before != first || v.After != second {
			t.Errorf("%#v", err)
		}
	}
}
