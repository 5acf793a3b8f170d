package explore

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Walked is the environment variable with how many steps Roam takes within each of the bounds.
const Walked = "FENCELOCK_WALK"

// longestWalk is the most steps of one walk.
const longestWalk = 2000

// Walks is what random walks through a model have met.
type Walks struct {
	Walks, Steps int64
	Seed         uint64   // of the walk that broke a rule
	Broken       string   // the rule, or ""
	Trace        []Action // of that walk
	Took         time.Duration
}

func (w Walks) String() string {
	end := "no rule broken"
	if w.Broken != "" {
		end = fmt.Sprintf("BROKEN after %d steps by seed %d: %s", len(w.Trace), w.Seed, w.Broken)
	}
	return fmt.Sprintf("%d walks, %d steps, %v: %s", w.Walks, w.Steps, w.Took.Round(10*time.Millisecond), end)
}

// Walk visits random states of a model that is too large to be exhausted, in walks from its initial
// state, until they have taken so many steps or a rule is broken. The seeds of the walks count up from
// the first one.
func Walk[S any](m Model[S], first uint64, steps int64, workers int) Walks {
	began := time.Now()
	defer debug.SetGCPercent(debug.SetGCPercent(1600)) // a walk keeps little, and leaves much behind
	var r Walks
	var walks, taken atomic.Int64
	var stopped atomic.Bool
	var all sync.WaitGroup
	for range workers {
		all.Go(func() { // ends with the steps, or with a broken rule
			for taken.Load() < steps && !stopped.Load() {
				seed := first + uint64(walks.Add(1)) - 1
				trace, broken := walk(m, seed)
				taken.Add(int64(len(trace)))
				if broken != "" && stopped.CompareAndSwap(false, true) {
					r.Seed, r.Broken, r.Trace = seed, broken, trace
				}
			}
		})
	}
	all.Wait()
	r.Walks, r.Steps, r.Took = walks.Load(), taken.Load(), time.Since(began)
	return r
}

// walk takes random steps until none can follow, and returns them and the rule that the last state breaks.
func walk[S any](m Model[S], seed uint64) (trace []Action, broken string) {
	chance := rand.New(rand.NewPCG(seed, 0))
	s := m.Copy(m.Init) // each step changes it: nothing else needs the states before
	var actions []Action
	for len(trace) < longestWalk {
		actions = m.next(s, actions[:0])
		if len(actions) == 0 {
			return trace, ""
		}
		a := actions[chance.IntN(len(actions))]
		m.do(s, a)
		trace = append(trace, a)
		if broken = m.Check(s); broken != "" {
			return trace, broken
		}
	}
	return trace, ""
}

// Roam fails if random walks within any of the bounds break a rule. They take some steps in each run,
// and more if the environment variable Walked says so.
func Roam[S any](t *testing.T, all []Bounds, model func(Bounds) Model[S]) {
	t.Helper()
	if Race {
		t.Skip("runs without the race detector")
	}
	steps, err := strconv.ParseInt(os.Getenv(Walked), 10, 64)
	if err != nil {
		steps = 100_000
	}
	for _, b := range all {
		m := model(b)
		w := Walk(m, 1, steps, 2)
		t.Logf("walked %s: %v", b.Name, w)
		if w.Broken != "" {
			t.Errorf("%v\n%s", w, timeline(m, w.Trace))
		}
	}
}

// MustMeet fails unless random walks meet a broken rule.
func MustMeet[S any](t *testing.T, m Model[S]) {
	t.Helper()
	if w := Walk(m, 1, 1_000_000, 2); w.Broken == "" {
		t.Errorf("%v, want a broken rule", w)
	}
}
