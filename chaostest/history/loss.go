package history

import (
	"cmp"
	"slices"
	"time"
)

// A Margin is the time from a loss to the next grant that it excluded.
type Margin struct {
	Known  bool          `json:"known"` // there was such a grant
	By     time.Duration `json:"by"`
	Before string        `json:"before"` // the ID of the lost acquisition
	Next   string        `json:"next"`
}

// less makes m the smaller one of those that are known.
func (m *Margin) less(other Margin) {
	if other.Known && (!m.Known || other.By < m.By) {
		*m = other
	}
}

// A Loss is a lost acquisition, and the next one that it excluded; nil if there is none.
type Loss struct {
	Acquisition
	Next *Acquisition
}

// Margin returns the time from the moment when the holder stopped relying on the lock to the next
// grant.
func (l Loss) Margin() time.Duration { return l.Next.Returned - l.Stopped() }

// Stopped returns when the holder of a lost lock stopped relying on it: at the signal, or at its own
// deadline if the process was frozen then.
func (a Acquisition) Stopped() time.Duration { return min(a.Lost, cmp.Or(a.Deadline, a.Lost)) }

// Losses returns the lost acquisitions, in the order in which their holders stopped relying on them.
func (h *History) Losses() (all []Loss) {
	for _, of := range believed(h.Acquisitions) {
		all = append(all, losses(of)...)
	}
	slices.SortFunc(all, func(a, b Loss) int { return cmp.Or(cmp.Compare(a.Stopped(), b.Stopped()), cmp.Compare(a.ID, b.ID)) })
	return all
}

// losses returns those of one name.
func losses(acquisitions []Acquisition) (all []Loss) {
	var any, exclusive *Acquisition // the next one, and the next exclusive one
	for i := len(acquisitions) - 1; i >= 0; i-- {
		a, next := &acquisitions[i], any
		if a.Shared {
			next = exclusive
		}
		if a.Lost != 0 {
			all = append(all, Loss{*a, next})
		}
		if any = a; !a.Shared {
			exclusive = a
		}
	}
	return all
}

// lateLosses finds grants that came before the previous holder stopped relying on its lock.
func lateLosses(acquisitions []Acquisition) (all []finding) {
	for _, l := range losses(acquisitions) {
		if l.Next != nil && l.Margin() < 0 {
			all = append(all, found(LateLoss, l.Acquisition, *l.Next, "%v lost %s, and the loss was signalled %v after the grant to %v", l, l.Name, -l.Margin(), l.Next))
		}
	}
	return all
}
