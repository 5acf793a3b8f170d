//go:build linux

// Package nemesis_test shares locks between real processes on real servers and injects faults: it
// kills and freezes the processes, cuts, delays and stalls their connections, stops and kills the
// servers and steps their clocks. Package history verifies what the processes believed, and every
// name must be free when all are dead.
//
// A run consists of rounds, and a round follows from its seed; a failure prints both:
//
//	go test ./internal/testkit/nemesis -run TestNemesis/redis$ -nemesis.seed=7
//
// The processes are not synchronised, so a seed repeats the faults and not every step. With
// -nemesis.for=1h a run takes an hour on each engine, with FENCELOCK_SLOW set 20 minutes.
package nemesis_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
)

var (
	seedFlag = flag.Uint64("nemesis.seed", 0, "the seed of the first round; 0 chooses one")
	forFlag  = flag.Duration("nemesis.for", 0, "for how long, on each engine")
	mixFlag  = flag.String("nemesis.mix", "safe", "safe: the faults an engine's page calls safe; all: the others too; or their names")
)

const (
	roundLength   = 20 * time.Second // at most
	shortLength   = 6 * time.Second  // of the only round where nobody asked for more
	plantedLength = 4 * time.Second  // of a round in which something is to be found

	// allowance is what a short round adds to how long a name may be had by nobody: it runs
	// beside all other tests, and what the machine is late then can hardly be measured.
	allowance = 10 * time.Second
)

func TestNemesis(t *testing.T) {
	length, names := shortLength, []string{"files", "redis", "redlock", "postgres", "sentinel-quarantine", "cluster"}
	if os.Getenv("FENCELOCK_SLOW") != "" {
		length, names = 20*time.Minute, slices.Sorted(maps.Keys(kinds))
	}
	length = cmp.Or(*forFlag, length)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			if length == shortLength {
				t.Parallel() // long runs are to see little of one another
			}
			a := newArena(t, name)
			seed := cmp.Or(*seedFlag, uint64(time.Now().UnixNano()%1e9))
			t.Logf("seeds from %d on", seed)
			for end := time.Now().Add(length); time.Until(end) > time.Second && !t.Failed(); seed++ {
				r := a.round(seed, mix(t, kinds[name]), min(roundLength, time.Until(end)))
				r.report(t)
			}
		})
	}
}

// mix is what the flag asks for.
func mix(t *testing.T, k kind) []string {
	t.Helper()
	all := slices.Concat(k.safe, k.unsafe)
	switch *mixFlag {
	case "safe":
		return k.safe
	case "all":
		return all
	}
	faults := strings.Split(*mixFlag, ",")
	for _, f := range faults {
		if !slices.Contains(all, f) {
			t.Fatalf("no fault %q here, but %v", f, all)
		}
	}
	return faults
}

const manyRounds = "it takes ten rounds or more to be found"

// TestPlanted: whatever is wrong with an engine is found, by the faults that bring it to
// light soonest. What is wrong with Sentinel needs no planting: without a quarantine its
// promoted replicas forget.
func TestPlanted(t *testing.T) {
	for _, c := range []struct {
		kind, planted string
		faults        []string
		slow          string // why it is left out, unless FENCELOCK_SLOW is set
	}{
		{"redis", "double", []string{freeze, drop, kill}, ""},
		{"redis", "deaf", []string{drop}, ""},
		{"redis", "name", []string{freeze, cut}, ""},
		{"redis", "early", []string{freeze}, ""},
		{"redis", "lazy", []string{twice}, "a lock that stays for one TTL differs from a slow machine's on a quiet one only"},
		{"redlock", "double", []string{freeze, drop, kill}, manyRounds},
		{"redlock", "deaf", []string{drop}, ""},
		{"redlock", "swap", []string{kill, cut}, ""},
		{"postgres", "deaf", []string{storm}, manyRounds},
		{"postgres", "swap", []string{kill, cut}, ""},
		{"postgres", "name", []string{freeze, cut}, manyRounds},
		{"sentinel", "", []string{split}, manyRounds},
	} {
		t.Run(c.kind+"/"+c.planted, func(t *testing.T) {
			if c.slow != "" && os.Getenv("FENCELOCK_SLOW") == "" {
				t.Skip(c.slow + "; set FENCELOCK_SLOW")
			}
			t.Parallel()
			a := newArena(t, c.kind)
			a.planted, a.hunting, a.orderly = c.planted, true, c.planted == "lazy"
			for seed := uint64(1); seed <= 60; seed++ {
				r := a.round(seed, c.faults, plantedLength)
				if len(r.violations) > 0 {
					t.Logf("found in round %d: %v", seed, r.violations[0])
					return
				}
				if r.free > r.bound {
					t.Logf("found in round %d: a name was closed for %v by nobody", seed, r.free)
					return
				}
			}
			t.Error("the nemesis has not found it")
		})
	}
}

// An outcome is what is known about a round when it is over.
type outcome struct {
	kind       string
	seed       uint64
	length     time.Duration
	holds      int
	faults     []fault // as they happened
	believed   []history.Acquisition
	violations []history.Violation
	overlaps   int      // that the engine's page allows
	wrong      []string // errors that must not be
	counts     map[string]int
	free       time.Duration // after all were dead, until every name could be had
	bound      time.Duration // what that may be
	calm       bool          // all ended in order, after a while without a fault
}

// report says what is wrong, or how much was done.
func (o *outcome) report(t *testing.T) {
	t.Helper()
	for _, v := range o.violations[:min(3, len(o.violations))] {
		t.Errorf("%v\n%s", v, o.around(v))
	}
	for _, w := range o.wrong[:min(3, len(o.wrong))] {
		t.Errorf("an error that must not be: %s", w)
	}
	bound := o.bound
	if o.length <= shortLength {
		bound += allowance
	}
	if o.free > bound {
		how := "the death of all"
		if o.calm {
			how = "all had ended in order"
		}
		t.Errorf("%v after %s a name was still not to be had; %v would do", o.free, how, bound)
	}
	if o.holds == 0 {
		t.Error("nobody got a lock")
	}
	if t.Failed() {
		t.Logf("%d violations in %d holds; to repeat the faults:\n\tgo test ./internal/testkit/nemesis -run 'TestNemesis/%s$' -nemesis.mix=%s -nemesis.for=%v -nemesis.seed=%d",
			len(o.violations), o.holds, o.kind, *mixFlag, o.length.Round(time.Second), o.seed)
	}
	t.Logf("seed %d: %d holds, %d faults, free after %v; %v", o.seed, o.holds, len(o.faults), o.free.Round(time.Millisecond), o.counts)
	if kinds[o.kind].overlaps {
		t.Logf("seed %d: %d overlaps, as the page says", o.seed, o.overlaps)
	}
}

// around lists the faults near a violation.
func (o *outcome) around(v history.Violation) string {
	var from, to time.Duration
	for _, a := range o.believed {
		switch a.ID {
		case v.After:
			to, from = a.Returned, min(cmp.Or(from, a.Called), a.Called)
		case v.Before:
			from = min(cmp.Or(from, a.Called), a.Called)
		}
	}
	var b strings.Builder
	for _, f := range o.faults {
		if f.from+f.length+f.by > from-time.Second && f.from < to+100*time.Millisecond {
			fmt.Fprintf(&b, "\t%v\n", f)
		}
	}
	return b.String()
}
