package check

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"time"
)

// Grant is one acquisition as its holder saw it. All times are by one clock.
type Grant struct {
	Name     string
	Holder   string // for error messages
	Shared   bool
	Limit    int // of shared holders; 0 means none
	Token    int64
	Called   time.Duration // when acquire was called
	Returned time.Duration // when acquire returned
	Until    time.Duration // when the deadline passed or release was called, whichever was first
}

func (g Grant) String() string {
	mode := "exclusive"
	if g.Shared {
		mode = "shared"
	}
	return fmt.Sprintf("%s by %s (%s, token %d, %v to %v)", g.Name, g.Holder, mode, g.Token, g.Returned, g.Until)
}

// conflicts reports whether two acquisitions of one name exclude each other.
func (g Grant) conflicts(h Grant) bool { return !g.Shared || !h.Shared }

// A Violation is an error in the history: an acquisition, and the other one that it conflicts with.
// If a limit was exceeded there is no single other one.
type Violation struct {
	Text          string
	Before, After Grant
}

func (v *Violation) Error() string { return v.Text }

// Sweep returns the errors in a history, each a *Violation, in no particular order: holders that
// exclude each other at the same time, more holders than the limit, and tokens that do not
// increase. An acquisition's token must be greater than that of every acquisition that it excludes
// and that returned before, and than that of every one that returned before it was called.
func Sweep(history []Grant) []error {
	names := map[string][]Grant{}
	for _, g := range history {
		names[g.Name] = append(names[g.Name], g)
	}
	var errs []error
	for _, grants := range names {
		slices.SortFunc(grants, func(a, b Grant) int { return cmp.Compare(a.Returned, b.Returned) })
		s := sweep{}
		for _, g := range grants {
			s.overlap(g)
			s.order(g)
		}
		errs = append(append(errs, s.errs...), later(grants)...)
	}
	return errs
}

// sweep is what stands at a moment that moves through the history of one name.
type sweep struct {
	errs              []error
	only, any         Grant // of the exclusive ones, and of all: who stays longest
	onlyTop, anyTop   Grant // and who has the greatest token
	started, anything bool  // there is an exclusive one, there is any
	sharing           ends  // when the shared ones end
}

func (s *sweep) finds(before, after Grant, format string, args ...any) {
	s.errs = append(s.errs, &Violation{fmt.Sprintf(format, args...), before, after})
}

func (s *sweep) overlap(g Grant) {
	if s.started && s.only.Until > g.Returned {
		s.finds(s.only, g, "held at once: %v and %v", s.only, g)
	} else if s.anything && !g.Shared && s.any.Until > g.Returned {
		s.finds(s.any, g, "held at once: %v and %v", s.any, g)
	}
	if g.Shared {
		s.limit(g)
	}
	if !s.anything || g.Until > s.any.Until {
		s.any = g
	}
	if !g.Shared && (!s.started || g.Until > s.only.Until) {
		s.only = g
	}
}

func (s *sweep) limit(g Grant) {
	for len(s.sharing) > 0 && s.sharing[0] <= g.Returned {
		heap.Pop(&s.sharing)
	}
	if g.Until > g.Returned {
		heap.Push(&s.sharing, g.Until)
	}
	if g.Limit > 0 && len(s.sharing) > g.Limit {
		s.finds(Grant{}, g, "%d holders, the limit is %d: %v", len(s.sharing), g.Limit, g)
	}
}

func (s *sweep) order(g Grant) {
	top, some := s.onlyTop, s.started
	if !g.Shared {
		top, some = s.anyTop, s.anything
	}
	if some && g.Token <= top.Token {
		s.finds(top, g, "token not greater: %v after %v", g, top)
	}
	if !s.anything || g.Token > s.anyTop.Token {
		s.anyTop = g
	}
	if !g.Shared && (!s.started || g.Token > s.onlyTop.Token) {
		s.onlyTop = g
	}
	s.anything, s.started = true, s.started || !g.Shared
}

// later compares the tokens of shared acquisitions, of which only those that
// follow each other have an order. The grants are sorted by when they returned.
func later(grants []Grant) (errs []error) {
	called := slices.Clone(grants)
	slices.SortFunc(called, func(a, b Grant) int { return cmp.Compare(a.Called, b.Called) })
	next, top := 0, -1
	for _, g := range called {
		for ; next < len(grants) && grants[next].Returned < g.Called; next++ {
			if top < 0 || grants[next].Token > grants[top].Token {
				top = next
			}
		}
		if top >= 0 && !g.conflicts(grants[top]) && g.Token <= grants[top].Token {
			errs = append(errs, &Violation{fmt.Sprintf("token not greater: %v called after %v", g, grants[top]), grants[top], g})
		}
	}
	return errs
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
