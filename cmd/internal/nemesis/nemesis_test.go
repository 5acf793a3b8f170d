//go:build linux

// Package nemesis_test runs rounds of package chaos on all engines, and finds each sabotage with
// them. A failure prints the seed of its round:
//
//	go test ./cmd/internal/nemesis -run TestNemesis/redis$ -nemesis.seed=7
//
// The processes are not synchronised, so a seed repeats the faults and not every step. With
// -nemesis.for=1h a run takes an hour on each engine, with FENCELOCK_SLOW set 20 minutes.
package nemesis_test

import (
	"cmp"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/cmd/internal/chaos"
	"github.com/fencelock/fencelock/cmd/internal/chaos/sandbox"
	"github.com/fencelock/fencelock/internal/reexec"
)

func TestMain(m *testing.M) {
	reexec.Main(chaos.Job(sandbox.Open))
	os.Exit(m.Run())
}

var (
	seedFlag = flag.Uint64("nemesis.seed", 0, "the seed of the first round; 0 chooses one")
	forFlag  = flag.Duration("nemesis.for", 0, "for how long, on each engine")
	mixFlag  = flag.String("nemesis.mix", "safe", "safe: the faults an engine's page calls safe; all: the others too; or their names")
)

const (
	shortLength   = 6 * time.Second // of the only round where nobody asked for more
	plantedLength = 4 * time.Second // of a round in which something is to be found
)

func TestNemesis(t *testing.T) {
	length, names := shortLength, []string{"files", "redis", "redlock", "postgres", "mariadb", "sentinel-quarantine", "cluster"}
	if os.Getenv("FENCELOCK_SLOW") != "" {
		length, names = 20*time.Minute, chaos.Engines()
	}
	length = cmp.Or(*forFlag, length)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			if length == shortLength {
				t.Parallel() // long runs are to see little of one another
			}
			config := chaos.Config{Engine: name, Open: sandbox.Open}
			var err error
			if config.Faults, err = config.Mix(*mixFlag); err != nil {
				t.Fatal(err)
			}
			seed := cmp.Or(*seedFlag, uint64(time.Now().UnixNano()%1e9))
			run, err := chaos.Run(t.Context(), config, seed, length)
			if err != nil {
				t.Fatal(err)
			}
			report(t, run)
		})
	}
}

const manyRounds = "it takes ten rounds or more to be found"

// TestPlanted: whatever is wrong with an engine is found, by the faults that bring it to
// light soonest. What is wrong with Sentinel needs no planting: without a quarantine its
// promoted replicas forget.
func TestPlanted(t *testing.T) {
	for _, c := range []struct {
		engine, sabotage string
		faults           []string
		slow             string // why it is left out, unless FENCELOCK_SLOW is set
	}{
		{"redis", "margin", []string{"freeze", "drop", "kill"}, ""},
		{"redis", "lost-signal", []string{"drop"}, ""},
		{"redis", "owner-check", []string{"freeze", "cut"}, ""},
		{"redis", "min-hold", []string{"freeze"}, ""},
		{"redis", "lost-release", []string{"twice"}, "a lock that stays for one TTL differs from a slow machine's on a quiet one only"},
		{"redis", "late-grant", []string{"delay"}, ""},
		{"redis", "guard", []string{"freeze"}, manyRounds},
		{"redlock", "margin", []string{"freeze", "drop", "kill"}, manyRounds},
		{"redlock", "lost-signal", []string{"drop"}, ""},
		{"redlock", "token-order", []string{"kill", "cut"}, ""},
		{"postgres", "lost-signal", []string{"storm"}, manyRounds},
		{"postgres", "token-order", []string{"kill", "cut"}, ""},
		{"postgres", "owner-check", []string{"freeze", "cut"}, manyRounds},
		{"sentinel", "", []string{"split"}, manyRounds},
	} {
		t.Run(c.engine+"/"+c.sabotage, func(t *testing.T) {
			if c.slow != "" && os.Getenv("FENCELOCK_SLOW") == "" {
				t.Skip(c.slow + "; set FENCELOCK_SLOW")
			}
			t.Parallel()
			a := chaos.NewArena(t, chaos.Config{Engine: c.engine, Open: sandbox.Open, Sabotage: c.sabotage, Faults: c.faults, Hunting: true})
			for seed := uint64(1); seed <= 60; seed++ {
				h := a.Round(t.Context(), seed, a.Plan(seed, plantedLength), plantedLength)
				if found := slices.Concat(h.Violations, h.Expected); len(found) > 0 {
					if v := verify(t, h); len(v.Refused)+len(v.Excused) == 0 {
						t.Errorf("verify accepts the history: %+v", v)
					}
					t.Logf("found in round %d: %v", seed, found[0])
					return
				}
			}
			t.Error("the nemesis has not found it")
		})
	}
}

// TestUnsafeFaults: two holders after a fault that the engine's page calls unsafe are expected
// findings, and no violations.
func TestUnsafeFaults(t *testing.T) {
	t.Parallel()
	a := chaos.NewArena(t, chaos.Config{Engine: "redis", Open: sandbox.Open, Faults: []string{"flush"}})
	for seed := uint64(1); seed <= 30; seed++ {
		h := a.Round(t.Context(), seed, a.Plan(seed, plantedLength), plantedLength)
		if n := len(h.Violations); n > 0 {
			t.Fatalf("round %d: %d violations: %v", seed, n, h.Violations[0])
		}
		if n := len(h.Expected); n > 0 {
			t.Logf("round %d: %d expected findings: %v", seed, n, h.Expected[0])
			return
		}
	}
	t.Error("no flush has led to two holders")
}

// verify writes a history to a file, and reads and judges that.
func verify(t *testing.T, h *history.History) history.Verdict {
	t.Helper()
	name := filepath.Join(t.TempDir(), "history.jsonl")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	read := h
	if err = errors.Join(h.Write(file), file.Close()); err == nil {
		read, err = history.Read(name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return read.Verify()
}

// report says what is wrong, or how much was done.
func report(t *testing.T, run *chaos.Report) {
	t.Helper()
	all := run.Violations()
	for _, v := range all[:min(3, len(all))] {
		t.Error(v)
	}
	if len(all) > 0 {
		t.Logf("it occurred again %d times, after these faults: %v\nto repeat those of the round:\n\tgo test ./cmd/internal/nemesis -run 'TestNemesis/%s$' -nemesis.mix=%s -nemesis.for=%v -nemesis.seed=%d",
			run.Shrunk.Again, run.Shrunk.Faults, run.Engine, *mixFlag, run.Last.Length.Round(time.Second), run.Last.Seed)
	}
	if v := verify(t, run.Last); v.Accepted != (len(run.Last.Violations) == 0) || v.Acquisitions == 0 {
		t.Errorf("verify judges the last round otherwise: %+v", v)
	}
	if run.Stats.Acquisitions == 0 {
		t.Error("nobody got a lock")
	}
	faults := 0
	for _, n := range run.Faults {
		faults += n
	}
	t.Logf("seed %d: %d holds, %d faults, %d findings that the page allows", run.Seed, run.Stats.Acquisitions, faults, run.Expected)
}
