package history

import (
	"cmp"
	"slices"
	"time"
)

// A Verdict says whether the specification accepts a history. docs/specification.md has the invariants
// and their numbers.
type Verdict struct {
	Accepted     bool      `json:"accepted"`
	Acquisitions int       `json:"acquisitions"`
	Names        int       `json:"names"`
	Writes       int       `json:"writes"`
	Open         int       `json:"open"`              // acquisitions without an end, which are not judged
	Refused      []Refusal `json:"refused,omitempty"` // what the specification does not allow
	Excused      []Refusal `json:"excused,omitempty"` // what it does not allow, but Rules.TwoHolders does
}

// A Refusal is a violation, the number of the invariant that it breaks, and what must have been wrong if
// the engine keeps its promise.
type Refusal struct {
	Violation
	Invariant  int    `json:"invariant"` // 0 is a rule that the specification does not have
	Assumption string `json:"assumption,omitempty"`
}

const (
	onClocks = "the clocks of holders and engine run at about the same rate, the engine has lost no data, and nobody used break"
	onStamps = "the times of the log are right within the skew"
)

// invariants has, for each rule, the invariant that it is about, and what is assumed.
var invariants = map[string]Refusal{
	Overlap:       {Invariant: 1, Assumption: onClocks + "; " + onStamps},
	LimitExceeded: {Invariant: 1, Assumption: onClocks + "; " + onStamps},
	NoOrder:       {Invariant: 1, Assumption: onClocks + "; " + onStamps},
	TokenOrder:    {Invariant: 2, Assumption: "the engine has kept its tokens, or its clock was not set back further than what it lost; " + onStamps},
	LateWrite:     {Invariant: 9, Assumption: "the resource checks tokens"},
	LateLoss:      {Invariant: 3, Assumption: onClocks + "; timers of the holder are not late"},
	MinHold:       {Invariant: 3, Assumption: "no clock was set, and nobody used break"},
	SlowDeath:     {Invariant: 6, Assumption: "the engine can be reached, and the bound is right for the engine"},
	ClosedName:    {Invariant: 7, Assumption: "the engine can be reached, and the bound is right for the engine"},
}

// Verify judges h by h.Rules, as [History.Judge] does, and says whether the specification accepts it.
func (h *History) Verify() Verdict {
	h.Judge(h.Rules)
	v := Verdict{Accepted: len(h.Violations) == 0, Acquisitions: len(h.Acquisitions), Writes: len(h.Writes)}
	names := map[string]bool{}
	for _, a := range h.Acquisitions {
		names[a.Name] = true
		if a.Ended == 0 && a.Lost == 0 {
			v.Open++
		}
	}
	v.Names = len(names)
	of := func(all []Violation) (refusals []Refusal) {
		for _, f := range all {
			r := invariants[f.Rule]
			r.Violation = f
			refusals = append(refusals, r)
		}
		return refusals
	}
	v.Refused, v.Excused = of(h.Violations), of(h.Expected)
	return v
}

// within returns acquisitions with the times that are certain although clocks differ by skew: a holder
// may have ended that much earlier, by the clock of another one.
func within(acquisitions []Acquisition, skew time.Duration) []Acquisition {
	if skew == 0 {
		return acquisitions
	}
	all := slices.Clone(acquisitions)
	for i := range all {
		a := &all[i]
		a.Called -= skew
		a.Until = max(a.Until-skew, a.Returned)
		for _, at := range []*time.Duration{&a.Lost, &a.Deadline} {
			if *at != 0 {
				*at = cmp.Or(*at-skew, 1)
			}
		}
	}
	return all
}
