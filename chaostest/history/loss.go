package history

import (
	"cmp"
	"time"
)

// A Margin is the time from a loss to the next grant that it excluded.
type Margin struct {
	Known  bool          `json:"known"` // there was such a grant
	By     time.Duration `json:"by"`
	Before string        `json:"before"` // the ID of the lost acquisition
	Next   string        `json:"next"`
}

// less makes m the smaller of both.
func (m *Margin) less(other Margin) {
	if !m.Known || other.By < m.By {
		*m = other
	}
}

// believedUntil returns when the holder of a lost lock stopped relying on it: at the signal, or at
// its own deadline if the process was frozen then.
func (a Acquisition) believedUntil() time.Duration {
	return min(a.Lost, cmp.Or(a.Deadline, a.Lost))
}

// losses calls see with each lost acquisition of one name and the next one that it excluded.
func losses(acquisitions []Acquisition, see func(lost, next Acquisition)) {
	var any, exclusive *Acquisition // the next one, and the next exclusive one
	for i := len(acquisitions) - 1; i >= 0; i-- {
		a, next := &acquisitions[i], any
		if a.Shared {
			next = exclusive
		}
		if a.Lost != 0 && next != nil {
			see(*a, *next)
		}
		if any = a; !a.Shared {
			exclusive = a
		}
	}
}

// lateLosses finds grants that came before the previous holder stopped relying on its lock.
func lateLosses(acquisitions []Acquisition) (all []finding) {
	losses(acquisitions, func(lost, next Acquisition) {
		if late := lost.believedUntil() - next.Returned; late > 0 {
			all = append(all, found(LateLoss, lost, next, "the loss of %v was signalled %v after it was granted to %v", lost, late, next))
		}
	})
	return all
}

// margins returns the smallest margin from when a holder stopped relying on its lock, and from the
// signal.
func margins(h *History) (own, signal Margin) {
	for _, of := range believed(h.Acquisitions) {
		losses(of, func(lost, next Acquisition) {
			own.less(Margin{true, next.Returned - lost.believedUntil(), lost.ID, next.ID})
			signal.less(Margin{true, next.Returned - lost.Lost, lost.ID, next.ID})
		})
	}
	return own, signal
}
