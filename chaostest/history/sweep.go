package history

import (
	"container/heap"
	"fmt"
	"slices"
	"sort"
	"time"
)

func (a Acquisition) String() string {
	mode := "exclusive"
	if a.Shared {
		mode = "shared"
	}
	return fmt.Sprintf("%s by %s (%s, token %d, %v to %v)", a.Name, a.ID, mode, a.Token, a.Returned, a.Until)
}

// excludes reports whether two acquisitions of one name exclude each other.
func (a Acquisition) excludes(b Acquisition) bool { return !a.Shared || !b.Shared }

// believed reports whether the holder of a ever believed in its lock. A grant that was over before
// its holder received it excludes nobody, and its token may be smaller than those that were
// received earlier.
func believed(a Acquisition) bool { return a.Until != 0 }

// byName sorts acquisitions by name and by when they returned.
func byName(all []Acquisition, which func(Acquisition) bool) map[string][]Acquisition {
	names := map[string][]Acquisition{}
	for _, a := range all {
		if which(a) {
			names[a.Name] = append(names[a.Name], a)
		}
	}
	for _, of := range names {
		sort.Slice(of, func(i, j int) bool { return of[i].Returned < of[j].Returned })
	}
	return names
}

// A finding is a violation, and whether it is one although two holders are possible.
type finding struct {
	Violation
	always bool
}

// A sweep is the state at a moment that moves through the acquisitions of one name. It needs no
// search: every acquisition is an interval, from the return of acquire until its holder no longer
// considers the lock held. Intervals that exclude each other must be disjoint. An acquisition's
// token must be greater than that of every acquisition that it excludes and that returned before,
// and than that of every one that returned before it was called.
type sweep struct {
	found             []finding
	only, any         Acquisition // of the exclusive ones, and of all: the one that ends last
	onlyTop, anyTop   Acquisition // and the one with the greatest token
	started, anything bool        // there is an exclusive one, there is any
	sharing           ends        // when the shared ones end
}

// sweepName sweeps the acquisitions of a name, in the order in which they returned.
func sweepName(acquisitions []Acquisition) []finding {
	s := sweep{}
	for _, a := range acquisitions {
		s.overlap(a)
		s.order(a)
	}
	return append(s.found, later(acquisitions)...)
}

// find adds a finding. Before is the zero value if it is about more than one.
func (s *sweep) find(rule string, before, after Acquisition, format string, args ...any) {
	s.found = append(s.found, found(rule, before, after, format, args...))
}

func found(rule string, before, after Acquisition, format string, args ...any) finding {
	always := rule == TokenOrder && after.Called > before.Returned
	return finding{Violation{rule, after.Name, after.Returned, before.ID, after.ID, fmt.Sprintf(format, args...)}, always}
}

func (s *sweep) overlap(a Acquisition) {
	if s.started && s.only.Until > a.Returned {
		s.find(Overlap, s.only, a, "held at once: %v and %v", s.only, a)
	} else if s.anything && !a.Shared && s.any.Until > a.Returned {
		s.find(Overlap, s.any, a, "held at once: %v and %v", s.any, a)
	}
	if a.Shared {
		s.limit(a)
	}
	if !s.anything || a.Until > s.any.Until {
		s.any = a
	}
	if !a.Shared && (!s.started || a.Until > s.only.Until) {
		s.only = a
	}
}

func (s *sweep) limit(a Acquisition) {
	for len(s.sharing) > 0 && s.sharing[0] <= a.Returned {
		heap.Pop(&s.sharing)
	}
	if a.Until > a.Returned {
		heap.Push(&s.sharing, a.Until)
	}
	if a.Limit > 0 && len(s.sharing) > a.Limit {
		s.find(LimitExceeded, Acquisition{}, a, "%d holders, the limit is %d: %v", len(s.sharing), a.Limit, a)
	}
}

func (s *sweep) order(a Acquisition) {
	top, some := s.onlyTop, s.started
	if !a.Shared {
		top, some = s.anyTop, s.anything
	}
	if some && a.Token <= top.Token {
		s.find(TokenOrder, top, a, "token not greater: %v after %v", a, top)
	}
	if !s.anything || a.Token > s.anyTop.Token {
		s.anyTop = a
	}
	if !a.Shared && (!s.started || a.Token > s.onlyTop.Token) {
		s.onlyTop = a
	}
	s.anything, s.started = true, s.started || !a.Shared
}

// later compares the tokens of shared acquisitions, of which only those that follow each other have
// an order.
func later(acquisitions []Acquisition) (all []finding) {
	called := slices.Clone(acquisitions)
	sort.Slice(called, func(i, j int) bool { return called[i].Called < called[j].Called })
	next, top := 0, -1
	for _, a := range called {
		for ; next < len(acquisitions) && acquisitions[next].Returned < a.Called; next++ {
			if top < 0 || acquisitions[next].Token > acquisitions[top].Token {
				top = next
			}
		}
		if top >= 0 && !a.excludes(acquisitions[top]) && a.Token <= acquisitions[top].Token {
			all = append(all, found(TokenOrder, acquisitions[top], a, "token not greater: %v called after %v", a, acquisitions[top]))
		}
	}
	return all
}

// minHolds finds acquisitions that returned before another holder's minimum hold was over. Those
// that overlap its belief are found by sweepName.
func minHolds(acquisitions []Acquisition, overlaps []finding) (all []finding) {
	known := map[string]bool{}
	for _, f := range overlaps {
		known[f.After] = known[f.After] || f.Rule != TokenOrder
	}
	longer := slices.Clone(acquisitions)
	for i, a := range longer {
		const unit = time.Millisecond // engines count in milliseconds, and may cut off a part of one
		if a.MinHold > 0 {
			longer[i].Until = max(a.Until, a.Called+a.MinHold-unit)
		}
	}
	for _, f := range sweepName(longer) {
		if f.Rule == TokenOrder || known[f.After] {
			continue
		}
		f.Rule, f.Text = MinHold, "before a minimum hold was over, "+f.Text
		all = append(all, f)
	}
	return all
}

// ends is a heap of times.
type ends []time.Duration

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i] < e[j] }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *ends) Push(x any) { *e = append(*e, x.(time.Duration)) }

// Pop implements heap.Interface.
func (e *ends) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}
