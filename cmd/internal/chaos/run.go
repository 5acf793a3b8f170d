//go:build unix

package chaos

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
)

const (
	roundLength   = 20 * time.Second // at most
	huntLength    = 4 * time.Second  // of a round in which something is to be found
	shortest      = time.Second      // of a round
	mostReplays   = 32               // of the faults of a violation
	mostShrinking = 3 * time.Minute  // for all replays
	replaySearch  = 3                // replays for a violation to occur again, before it counts as one that does not
)

// Live is what is known during a run.
type Live struct {
	Acquired, Faults, Violations atomic.Int64
	Shrinking                    atomic.Bool // the run is over, and fewer faults are looked for
}

// A Report is the outcome of a run.
type Report struct {
	Engine   string           `json:"engine"`
	Workers  int              `json:"workers"`
	Seed     uint64           `json:"seed"`     // of the first round
	Stats    history.Stats    `json:"stats"`    // of all rounds
	Faults   map[string]int   `json:"faults"`   // how often each happened
	Expected int              `json:"expected"` // violations that the engine's page calls possible
	TTL      time.Duration    `json:"-"`
	Length   time.Duration    `json:"-"` // of all rounds, without their starts and ends
	Last     *history.History `json:"-"` // of the last round: that of the violation, if there is one
	Shrunk   *Shrunk          `json:"-"` // nil if there is no violation
}

// Violations returns what must not be.
func (r *Report) Violations() []history.Violation {
	if r.Last == nil {
		return nil
	}
	return r.Last.Violations
}

// Run starts the servers and carries out rounds until length is over, ctx ends or a round has a
// violation. Then it looks for fewer faults that show the violation. The report is not nil if a
// round was carried out. An error says why the run could not go on.
func Run(ctx context.Context, c Config, seed uint64, length time.Duration) (report *Report, err error) {
	err = hosttest.On("chaos", func(h *hosttest.Host) {
		a := NewArena(h, c)
		report = &Report{Engine: a.Own.Name, Workers: a.Workers, TTL: a.TTL, Seed: seed, Faults: map[string]int{}, Stats: new(history.History).Stats()}
		longest := roundLength
		if a.Hunting {
			longest = huntLength
		}
		for end := time.Now().Add(length); ctx.Err() == nil && len(report.Violations()) == 0; seed++ {
			left := min(longest, time.Until(end))
			if report.Last != nil && left < shortest {
				break
			}
			faults := a.Plan(seed, left)
			report.add(a.Round(ctx, seed, faults, left))
			if v := report.Violations(); len(v) > 0 {
				a.Live.Shrinking.Store(true)
				report.Shrunk = a.shrink(ctx, seed, faults, v[0])
			}
		}
	})
	if report != nil && report.Last == nil {
		report = nil
	}
	return report, err
}

// add adds a round.
func (r *Report) add(h *history.History) {
	r.Last, r.Length, r.Expected = h, r.Length+h.Length, r.Expected+len(h.Expected)
	for _, f := range h.Faults {
		r.Faults[f.What]++
	}
	r.Stats.Add(h.Stats())
}

// Shrunk is the smallest list of faults after which a violation has occurred again.
type Shrunk struct {
	Faults  []Fault
	Replays int // carried out
	Again   int // of them: the violation occurred again
}

// shrink replays the faults that came before a violation, and then fewer and fewer of them. As the
// processes are not synchronised, fewer faults count only if the violation occurs again.
func (a *Arena) shrink(ctx context.Context, seed uint64, faults []Fault, v history.Violation) *Shrunk {
	ctx, cancel := context.WithTimeout(ctx, mostShrinking)
	defer cancel()
	faults = slices.DeleteFunc(slices.Clone(faults), func(f Fault) bool { return f.from > v.At })
	return shrink(ctx, faults, func(faults []Fault) (again bool) {
		h := a.Round(ctx, seed, faults, max(v.At, 0)+a.TTL)
		return slices.ContainsFunc(h.Violations, func(w history.Violation) bool { return w.Rule == v.Rule })
	})
}

// shrink looks for fewer faults for which replay finds the violation again, until ctx ends. It leaves
// out half of the faults, then quarters, and so on down to single ones.
func shrink(ctx context.Context, faults []Fault, replay func([]Fault) (again bool)) *Shrunk {
	s := &Shrunk{Faults: faults}
	again := func(faults []Fault) bool {
		if ctx.Err() != nil || s.Replays == mostReplays {
			return false
		}
		s.Replays++
		if !replay(faults) {
			return false
		}
		s.Faults, s.Again = faults, s.Again+1
		return true
	}
	for try := 0; try < replaySearch && !again(faults); try++ {
	}
	if s.Again == 0 || again(nil) {
		return s
	}
	for part := len(faults) / 2; part > 0; part /= 2 {
		for from := 0; from < len(s.Faults); {
			if !again(slices.Concat(s.Faults[:from], s.Faults[min(from+part, len(s.Faults)):])) {
				from += part
			}
		}
	}
	return s
}
