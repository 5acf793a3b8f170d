package sim_test

import (
	"bytes"
	"testing"

	"github.com/fencelock/fencelock/internal/testkit/sim"
)

// TestNoViolation plays a few schedules of every class.
func TestNoViolation(t *testing.T) {
	events := int64(1_500_000 / pace)
	results := sim.Campaign{Classes: sim.Classes, Seed: 1, Events: events, Cores: 2}.Play()
	var table bytes.Buffer
	if err := sim.Report(&table, results); err != nil {
		t.Error(err)
	}
	t.Log("\n" + table.String())
	for _, r := range results {
		for _, v := range r.Class.Breaks {
			if pace == 1 && v == sim.Overlap && r.Tally.Broken[v] == 0 && !overlaps(r.Class) {
				t.Errorf("class %q shows no %v: it is not outside of the model", r.Class.Name, v)
			}
		}
		if r.Tally.Acquired == 0 || r.Tally.Writes == 0 {
			t.Errorf("class %q: nobody got the lock, or wrote: %+v", r.Class.Name, r.Tally)
		}
	}
}

// overlaps plays more schedules of a class of which a few showed no overlap.
func overlaps(c *sim.Class) bool {
	again := sim.Campaign{Classes: []*sim.Class{c}, Seed: 1, Events: 1_000_000, Cores: 2}.Play()
	return again[0].Tally.Broken[sim.Overlap] > 0
}

// TestSameSeed plays schedules twice, in worlds with different pasts.
func TestSameSeed(t *testing.T) {
	var fresh, used bytes.Buffer
	old := &sim.World{Trace: &used}
	for i, c := range sim.Classes {
		if i%pace != 0 {
			continue
		}
		_ = old.Run(c, 99) // a past; what it shows is another test's
		used.Reset()
		fresh.Reset()
		err1, err2 := old.Run(c, 7), (&sim.World{Trace: &fresh}).Run(c, 7)
		if (err1 == nil) != (err2 == nil) || fresh.Len() == 0 || !bytes.Equal(fresh.Bytes(), used.Bytes()) {
			t.Errorf("class %q: the same seed played differently (%v, %v)", c.Name, err1, err2)
		}
	}
}

func TestCoresDoNotMatter(t *testing.T) {
	c := sim.Campaign{Classes: sim.Classes[:6], Seed: 5, Events: 200_000 / pace, Cores: 1}
	one := c.Play()
	c.Cores = 3
	for i, r := range c.Play() {
		if r.Tally != one[i].Tally {
			t.Errorf("class %q: %+v on three cores, %+v on one", r.Class.Name, r.Tally, one[i].Tally)
		}
	}
}

// TestMutants takes away one safety line after the other: each must show.
func TestMutants(t *testing.T) {
	for _, m := range sim.Mutants {
		t.Run(m.Name, func(t *testing.T) {
			if found, _ := m.Hunt(m.Seed, 100_000); found > 0 {
				return
			}
			found, schedules := m.Hunt(1, 20_000_000)
			if found == 0 {
				t.Fatalf("no %v in %d schedules of class %q", m.Shows, schedules, m.Class)
			}
			t.Logf("%v shows at seed %d of class %q: note it for Mutants", m.Shows, found, m.Class)
		})
	}
}

// TestNoMutant plays the mutants' schedules with all lines.
func TestNoMutant(t *testing.T) {
	w := &sim.World{}
	for _, m := range sim.Mutants {
		if err := w.Run(sim.ClassOf(m.Class), m.Seed); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
	for v, n := range w.Tally.Broken {
		if v := sim.Violation(v); n > 0 && v != sim.Overlap {
			t.Errorf("%d times %v with all lines", n, v)
		}
	}
}
