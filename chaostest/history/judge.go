package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// The rules that a history can violate.
const (
	Overlap       = "overlap"       // holders that exclude each other at the same time
	LimitExceeded = "limit"         // more shared holders than the limit
	TokenOrder    = "token order"   // a token that is not greater than those before
	MinHold       = "minimum hold"  // a grant before the minimum hold of another holder was over
	LateLoss      = "late loss"     // a loss was signalled after the next grant
	SlowDeath     = "slow death"    // a lock was not free in time after its holder's death
	ClosedName    = "closed name"   // nobody held a lock, and nobody could acquire it, for too long
	LateWrite     = "late write"    // the resource accepted a smaller token after a greater one
	LostWrite     = "lost write"    // the resource gave two writes the same number
	WrongRefusal  = "wrong refusal" // the resource refused a token that was not smaller
	NoOrder       = "linearizability"
	WrongError    = "error" // an error that must not occur
)

// Rules are what holds in a run. The zero value checks all rules that have no bound.
type Rules struct {
	// TwoHolders says that the faults of the run can lead to two holders, as the engine's page says.
	// Then overlaps, limits, minimum holds and late losses are expected, and so is a token that is
	// not greater than one whose acquisition it overlaps.
	TwoHolders bool `json:"two_holders,omitempty"`
	// IgnoreMinHolds says that clocks were set, which ends minimum holds early.
	IgnoreMinHolds bool `json:"ignore_min_holds,omitempty"`
	// Death is how soon after its holder's death a lock must be free, for a waiter and for an
	// attempt that does not wait: usually its TTL and what the machine may be late. 0 means that
	// this is not judged.
	Death time.Duration `json:"death,omitempty"`
	// Closed is how long a lock may have no holder while a worker that no fault affects waits for
	// it or tries to acquire it. A grant that never reached its waiter closes a lock for a TTL, so
	// with faults the bound is not less. 0 means that this is not judged.
	Closed time.Duration `json:"closed,omitempty"`
	// Recovery is for how long after a fault Death and Closed still count it as present: until
	// clients have connected again, and a server that was restarted grants locks again.
	Recovery time.Duration `json:"recovery,omitempty"`
	// Search is how long to search for an order in which a lock could have granted the acquisitions.
	// 0 means that this is not judged.
	Search time.Duration `json:"search,omitempty"`
	// Skew is by how much the clocks of the processes may differ. What is shorter is no violation. 0 is
	// for processes of one machine.
	Skew time.Duration `json:"skew,omitempty"`
}

// Judge finds the violations of h, and stores them there in place of those of an earlier call.
func (h *History) Judge(r Rules) {
	h.Rules, h.Violations, h.Expected, h.Undecided = r, nil, nil, nil
	end := time.Now().Add(r.Search)
	for name, of := range believed(h.Acquisitions) {
		of = within(of, r.Skew)
		all := append(sweep(of, r.Skew), lateLosses(of)...)
		if !r.IgnoreMinHolds && len(all) == 0 {
			all = minHolds(of, r.Skew)
		}
		if r.Search > 0 && len(all) == 0 {
			more, decided := search(of, end)
			if all = more; !decided {
				h.Undecided = append(h.Undecided, name)
				slices.Sort(h.Undecided)
			}
		}
		for _, f := range all {
			if r.TwoHolders && !f.always {
				h.Expected = append(h.Expected, f.Violation)
			} else {
				h.Violations = append(h.Violations, f.Violation)
			}
		}
	}
	h.judgeWrites()
	h.judgeClosed()
	for _, e := range h.Wrong {
		h.Violations = append(h.Violations, Violation{WrongError, e.Name, e.At, "", e.ID, e.Worker + ": " + e.Text})
	}
	for _, all := range [][]Violation{h.Violations, h.Expected} {
		slices.SortStableFunc(all, func(a, b Violation) int {
			return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Name, b.Name))
		})
	}
}

// judgeClosed finds the stretches that are longer than the rules allow.
func (h *History) judgeClosed() {
	for _, s := range h.closed(h.Rules.Recovery) {
		rule, bound, text := ClosedName, h.Rules.Closed, "nobody held it"
		if s.Died {
			rule, bound, text = SlowDeath, h.Rules.Death, "its holder was dead"
		}
		how := map[bool]string{false: "waited", true: "tried"}[s.Try]
		if bound > 0 && s.Length() > bound {
			text = fmt.Sprintf("%s from %v to %v: %s, and %s %s; the bound is %v", s.Name, s.From, s.To, text, s.By, how, bound)
			h.Violations = append(h.Violations, Violation{rule, s.Name, s.To, s.After, s.By, text})
		}
	}
}
