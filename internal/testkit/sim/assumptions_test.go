//go:build !race

package sim_test

import (
	"testing"

	"github.com/fencelock/fencelock/internal/testkit/sim"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
)

// TestAssumptions: what happens while an assumption of Redlock holds, and when it does not.
func TestAssumptions(t *testing.T) {
	seen := func(class string) verdict.Verdict {
		tally := sim.Campaign{Classes: []*sim.Class{sim.ClassOf(class)}, Seed: 1, Events: 400_000, Cores: 2}.Play()[0].Tally
		switch {
		case tally.Acquired == 0 || tally.Writes == 0:
			t.Fatalf("class %q: nobody got the lock, or wrote", class)
		case tally.Broken[sim.Disorder] > 0, tally.Broken[sim.Leak] > 0:
			return verdict.Unsafe
		case tally.Broken[sim.Overlap] > 0, class == "pauses" && tally.Stale > 0:
			return verdict.Guarded
		}
		return verdict.Safe
	}
	verdict.Is(t, "Redlock: messages are lost, delayed, reordered or repeated, or a partition lasts", verdict.Safe, seen("network"), seen("late"))
	verdict.Is(t, "Redlock: clients pause at any step, for any time", verdict.Guarded, seen("pauses"))
	verdict.Is(t, "Redlock: clocks differ in rate, by less than 2 % of the TTL and 10 ms over a TTL", verdict.Safe, seen("clocks"))
	verdict.Is(t, "Redlock: clocks differ in rate, by more than that", verdict.Guarded, seen("fast clocks"))
	verdict.Is(t, "Redlock: clocks of nodes are stepped", verdict.Guarded, seen("clock jumps"))
	verdict.Is(t, "Redlock: nodes lose data", verdict.Safe, seen("restarts"))
	verdict.Is(t, "Redlock: nodes lose data, and their clocks are wrong by more than MaxTTL", verdict.Unsafe, seen("forgetful, astray"))
	verdict.Is(t, "Redlock: nodes lose locks and keep tokens, without the quarantine", verdict.Guarded, seen("locks lost"))
	verdict.Is(t, "Redlock: nodes lose data, without the quarantine", verdict.Unsafe, seen("forgetful"))
	verdict.Is(t, "Redlock: clients list different nodes, with a majority in common", verdict.Safe, seen("node lists"))
}
