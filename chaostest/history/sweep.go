package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

func (a Acquisition) String() string {
	return fmt.Sprintf("%s (token %d, %v to %v)", a.Worker, a.Token, a.Returned.Round(time.Microsecond), a.Until.Round(time.Microsecond))
}

// byName groups items by the names of their locks.
func byName[T any](all []T, name func(T) string) map[string][]T {
	names := map[string][]T{}
	for _, item := range all {
		names[name(item)] = append(names[name(item)], item)
	}
	return names
}

// believed returns by name, in the order in which they returned, the acquisitions whose holders ever
// believed in their lock. A grant that was over before its holder received it excludes nobody, and
// its token may be smaller than those that were received earlier.
func believed(all []Acquisition) map[string][]Acquisition {
	names := byName(all, func(a Acquisition) string { return a.Name })
	for name, of := range names {
		names[name] = slices.DeleteFunc(of, func(a Acquisition) bool { return a.Until == 0 })
		slices.SortFunc(names[name], func(a, b Acquisition) int { return cmp.Compare(a.Returned, b.Returned) })
	}
	return names
}

// A finding is a violation, and whether it is one although two holders are possible.
type finding struct {
	Violation
	always bool
}

// A latest has the acquisition that ends last and the one with the greatest token; nil before the
// first one.
type latest struct{ ending, token *Acquisition }

func (l *latest) end(a *Acquisition) {
	if l.ending == nil || a.Until > l.ending.Until {
		l.ending = a
	}
}

func (l *latest) issue(a *Acquisition) {
	if l.token == nil || a.Token > l.token.Token {
		l.token = a
	}
}

// sweep moves through the acquisitions of one name, in the order in which they returned. It needs no
// search: every acquisition is an interval, from the return of acquire until its holder no longer
// considers the lock held. Intervals that exclude each other must be disjoint. An acquisition's
// token must be greater than that of every acquisition that it excludes and that returned before,
// and than that of every one that returned before it was called. Of two that returned within skew,
// either may have been the first.
func sweep(acquisitions []Acquisition, skew time.Duration) (all []finding) {
	var any, exclusive latest
	issued := 0               // of how many the token counts
	var sharing []Acquisition // those that are shared and have not ended
	for i := range acquisitions {
		a, before := &acquisitions[i], &any
		for ; issued < i && acquisitions[issued].Returned <= a.Returned-skew; issued++ {
			if any.issue(&acquisitions[issued]); !acquisitions[issued].Shared {
				exclusive.issue(&acquisitions[issued])
			}
		}
		if a.Shared {
			before = &exclusive
			sharing = slices.DeleteFunc(append(sharing, *a), func(s Acquisition) bool { return s.Until <= a.Returned })
			if a.Limit > 0 && len(sharing) > a.Limit {
				all = append(all, found(LimitExceeded, Acquisition{}, *a, "%s had %d holders, the limit is %d: %v was the last", a.Name, len(sharing), a.Limit, a))
			}
		}
		if b := before.ending; b != nil && b.Until > a.Returned {
			all = append(all, found(Overlap, *b, *a, "%v and %v both held %s", b, a, a.Name))
		}
		if b := before.token; b != nil && a.Token <= b.Token {
			all = append(all, found(TokenOrder, *b, *a, "%v was granted %s after %v, with a token that is not greater", a, a.Name, b))
		}
		if any.end(a); !a.Shared {
			exclusive.end(a)
		}
	}
	return append(all, later(acquisitions)...)
}

func found(rule string, before, after Acquisition, format string, args ...any) finding {
	always := rule == TokenOrder && after.Called > before.Returned
	return finding{Violation{rule, after.Name, after.Returned, before.ID, after.ID, fmt.Sprintf(format, args...)}, always}
}

// later compares the tokens of shared acquisitions, of which only those that follow each other have
// an order.
func later(acquisitions []Acquisition) (all []finding) {
	var uses []use
	for i, a := range acquisitions {
		uses = append(uses, use{a.Called, a.Returned, a.Token, i})
	}
	follow(uses, func(top, next int) {
		if a, b := acquisitions[next], acquisitions[top]; a.Shared && b.Shared && a.Token <= b.Token {
			all = append(all, found(TokenOrder, b, a, "%v called for %s after %v, and got a token that is not greater", a, a.Name, b))
		}
	})
	return all
}

// A use is a token and the time or the place of what was done with it.
type use struct {
	began, over time.Duration
	token       int64
	place       int
}

// follow calls see with the place of each use, and that of the one with the greatest token among
// those that were over before it began, if there are any.
func follow(began []use, see func(top, next int)) {
	over := slices.SortedStableFunc(slices.Values(began), func(a, b use) int { return cmp.Compare(a.over, b.over) })
	slices.SortStableFunc(began, func(a, b use) int { return cmp.Compare(a.began, b.began) })
	top := use{place: -1}
	for _, next := range began {
		for ; len(over) > 0 && over[0].over < next.began; over = over[1:] {
			if top.place < 0 || over[0].token > top.token {
				top = over[0]
			}
		}
		if top.place >= 0 {
			see(top.place, next.place)
		}
	}
}

// minHolds finds acquisitions that returned before another holder's minimum hold was over. Sweep has
// found nothing in them.
func minHolds(acquisitions []Acquisition, skew time.Duration) []finding {
	longer := slices.Clone(acquisitions)
	for i, a := range longer {
		const unit = time.Millisecond // engines count in milliseconds, and may cut off a part of one
		if a.MinHold > 0 {
			longer[i].Until = max(a.Until, a.Called+a.MinHold-unit)
		}
	}
	all := sweep(longer, skew)
	for i := range all {
		all[i].Rule, all[i].Text = MinHold, "before a minimum hold was over, "+all[i].Text
	}
	return all
}
