package explore

import (
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// longestWalk is the most steps of one walk.
const longestWalk = 2000

// Walk visits random states of a model that is too large to be exhausted, in walks from its initial
// state, until they have taken so many steps or a rule is broken. The seeds of the walks count up from
// the first one.
func Walk[S State[S]](m Model[S], first uint64, steps int64, workers int) (r Result) {
	began := time.Now()
	defer debug.SetGCPercent(debug.SetGCPercent(1600)) // a walk keeps little, and leaves much behind
	var walks, taken atomic.Int64
	var stopped atomic.Bool
	var all sync.WaitGroup
	for range workers {
		all.Go(func() { // ends with the steps, or with a broken rule
			for taken.Load() < steps && !stopped.Load() {
				seed := first + uint64(walks.Add(1)) - 1
				trace, broken := walk(m, seed, S.Check)
				taken.Add(int64(len(trace)))
				if broken != "" && stopped.CompareAndSwap(false, true) {
					r.Seed, r.Broken, r.Trace = seed, broken, trace
				}
			}
		})
	}
	all.Wait()
	r.Walks, r.Steps, r.Took = int(walks.Load()), int(taken.Load()), time.Since(began)
	r.Complete = r.Broken == ""
	return r
}

// walk takes random steps until none can follow, or a check of the state objects to it. It returns the steps
// and the objection.
func walk[S State[S]](m Model[S], seed uint64, check func(S) string) (trace []Action, broken string) {
	chance := rand.New(rand.NewPCG(seed, 0))
	s := m.Init.Copy() // each step changes it: nothing else needs the states before
	var actions []Action
	for len(trace) < longestWalk {
		actions = m.next(s, actions[:0])
		if len(actions) == 0 {
			return trace, ""
		}
		a := actions[chance.IntN(len(actions))]
		m.do(s, a)
		trace = append(trace, a)
		if broken = check(s); broken != "" {
			return trace, broken
		}
	}
	return trace, ""
}
