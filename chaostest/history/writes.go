package history

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
)

// judgeWrites finds writes that the resource should not have accepted, or refused.
func (h *History) judgeWrites() (found []finding) {
	names := map[string][]GuardedWrite{}
	for _, w := range h.Writes {
		names[w.Name] = append(names[w.Name], w)
	}
	granted := byName(h.Acquisitions, func(Acquisition) bool { return true })
	for name, writes := range names {
		found = append(found, lateWrites(writes)...)
		found = append(found, wrongRefusals(writes, granted[name])...)
	}
	return found
}

func wrote(rule string, before, after GuardedWrite, format string, args ...any) finding {
	return finding{Violation{rule, after.Name, after.At, before.ID, after.ID, fmt.Sprintf(format, args...)}, true}
}

func (w GuardedWrite) String() string {
	return fmt.Sprintf("%s by %s (token %d, at %v)", w.Name, cmp.Or(w.ID, w.Worker), w.Token, w.At)
}

// lateWrites finds accepted writes with a smaller token than an earlier one. If the resource
// numbers its writes, their order is known. Otherwise a write is earlier if it was over before the
// other began.
func lateWrites(writes []GuardedWrite) (all []finding) {
	accepted := slices.DeleteFunc(slices.Clone(writes), func(w GuardedWrite) bool { return w.Refused })
	if !slices.ContainsFunc(accepted, func(w GuardedWrite) bool { return w.Value == 0 }) {
		return lateByValue(accepted)
	}
	over := slices.Clone(accepted)
	sort.Slice(over, func(i, j int) bool { return over[i].At < over[j].At })
	sort.Slice(accepted, func(i, j int) bool { return accepted[i].From < accepted[j].From })
	next, top := 0, -1
	for _, w := range accepted {
		for ; next < len(over) && over[next].At < w.From; next++ {
			if top < 0 || over[next].Token > over[top].Token {
				top = next
			}
		}
		if top >= 0 && w.Token < over[top].Token {
			all = append(all, wrote(LateWrite, over[top], w, "accepted late: %v after %v", w, over[top]))
		}
	}
	return all
}

func lateByValue(accepted []GuardedWrite) (all []finding) {
	sort.Slice(accepted, func(i, j int) bool {
		a, b := &accepted[i], &accepted[j]
		return cmp.Or(cmp.Compare(a.Value, b.Value), cmp.Compare(a.At, b.At)) < 0
	})
	top := 0
	for i, w := range accepted {
		switch {
		case i > 0 && w.Value == accepted[i-1].Value:
			all = append(all, wrote(LostWrite, accepted[i-1], w, "both are number %d: %v and %v", w.Value, accepted[i-1], w))
		case w.Token < accepted[top].Token:
			all = append(all, wrote(LateWrite, accepted[top], w, "accepted late: %v after %v", w, accepted[top]))
		}
		if w.Token > accepted[top].Token {
			top = i
		}
	}
	return all
}

// wrongRefusals finds refused writes before whose end no greater token was granted. Accepted writes
// do not count: a process may die before it records one.
func wrongRefusals(writes []GuardedWrite, acquisitions []Acquisition) (all []finding) {
	sort.Slice(writes, func(i, j int) bool { return writes[i].At < writes[j].At })
	next, top := 0, int64(0)
	for _, w := range writes {
		for ; next < len(acquisitions) && acquisitions[next].Returned <= w.At; next++ {
			top = max(top, acquisitions[next].Token)
		}
		if w.Refused && w.Token >= top {
			all = append(all, wrote(WrongRefusal, GuardedWrite{}, w, "refused, although no token was greater: %v", w))
		}
	}
	return all
}
