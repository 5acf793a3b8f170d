package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// judgeWrites finds writes that the resource should not have accepted, or refused.
func (h *History) judgeWrites() {
	acquisitions := byName(h.Acquisitions, func(a Acquisition) string { return a.Name })
	for name, writes := range byName(h.Writes, func(w Event) string { return w.Name }) {
		h.Violations = append(h.Violations, lateWrites(writes)...)
		for _, w := range writes {
			greater := func(a Acquisition) bool { return a.Returned <= w.At && a.Token > w.Token }
			// Accepted writes do not count: a process may die before it records one.
			if w.Refused && !slices.ContainsFunc(acquisitions[name], greater) {
				h.Violations = append(h.Violations, wrote(WrongRefusal, Event{}, w, "refused, although no token was greater: %v", written(w)))
			}
		}
	}
}

func wrote(rule string, before, after Event, format string, args ...any) Violation {
	return Violation{rule, after.Name, after.At, before.ID, after.ID, fmt.Sprintf(format, args...)}
}

func written(w Event) string {
	return fmt.Sprintf("%s by %s (token %d, at %v)", w.Name, cmp.Or(w.ID, w.Worker), w.Token, w.At)
}

// lateWrites finds accepted writes with a smaller token than an earlier one. If the resource
// numbers its writes, their order is known. Otherwise a write is earlier if it was over before the
// other began.
func lateWrites(writes []Event) (all []Violation) {
	accepted := slices.DeleteFunc(slices.Clone(writes), func(w Event) bool { return w.Refused })
	numbered := !slices.ContainsFunc(accepted, func(w Event) bool { return w.Value == 0 })
	var uses []use
	numbers := map[int64]Event{}
	for i, w := range accepted {
		began, over := w.From, w.At
		if numbered {
			began, over = time.Duration(w.Value), time.Duration(w.Value)
		}
		uses = append(uses, use{began, over, w.Token, i})
		if before, ok := numbers[w.Value]; ok && numbered {
			all = append(all, wrote(LostWrite, before, w, "both are number %d: %v and %v", w.Value, written(before), written(w)))
		}
		numbers[w.Value] = w
	}
	follow(uses, func(top, next int) {
		if w, before := accepted[next], accepted[top]; w.Token < before.Token {
			all = append(all, wrote(LateWrite, before, w, "accepted late: %v after %v", written(w), written(before)))
		}
	})
	return all
}
