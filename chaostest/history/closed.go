package history

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"
)

// A Stretch is a time in which nobody held a lock, although workers that no fault affected waited
// for it, one or more at each moment, or failed to acquire it.
type Stretch struct {
	Name  string        `json:"name"`
	From  time.Duration `json:"from"`
	To    time.Duration `json:"to"`
	After string        `json:"after,omitempty"` // the ID of the acquisition before; empty if there is none
	Died  bool          `json:"died,omitempty"`  // the process of that acquisition died
	By    string        `json:"by"`              // the ID of the wait that shows it, the last one if there are several
	Try   bool          `json:"try,omitempty"`   // that wait is an attempt that does not wait
}

// Length returns how long it is.
func (s Stretch) Length() time.Duration { return s.To - s.From }

// free returns when the acquisition no longer excluded others: its minimum hold included.
func (a Acquisition) free(end time.Duration) time.Duration {
	end = cmp.Or(a.Ended, a.Died, end)
	if a.Lost != 0 {
		end = max(a.Until, a.Stopped())
	}
	return max(end, a.Returned+a.MinHold)
}

// closed returns the stretches of all names, one for each gap, without those in which a fault was
// present, or less than recovery before. The longest comes first.
func (h *History) closed(recovery time.Duration) (all []Stretch) {
	acquisitions := byName(h.Acquisitions, func(a Acquisition) string { return a.Name })
	for name, waits := range byName(h.Waits, func(w Wait) string { return w.Name }) {
		c := closing{h, recovery, acquisitions[name], waits}
		all = append(all, c.stretches()...)
	}
	slices.SortFunc(all, func(a, b Stretch) int {
		return cmp.Or(cmp.Compare(b.Length(), a.Length()), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// A closing finds the stretches of one name.
type closing struct {
	*History
	recovery     time.Duration
	acquisitions []Acquisition
	waits        []Wait // at least one
}

func (c *closing) stretches() []Stretch {
	slices.SortFunc(c.waits, func(a, b Wait) int { return cmp.Compare(a.From, b.From) })
	gaps := c.gaps()
	longest, last := make([]Stretch, len(gaps)), make([]Stretch, len(gaps))
	busy := time.Duration(math.MinInt64) // when the earlier waits have ended
	for i, w := range c.waits {
		alone := w.From > busy && (i+1 == len(c.waits) || c.waits[i+1].From > w.To)
		busy = max(busy, w.To)
		first := sort.Search(len(gaps), func(k int) bool { return gaps[k].To > w.From })
		for k := first; k < len(gaps) && gaps[k].From < w.To; k++ {
			s := c.shown(w, gaps[k], alone)
			if s.Length() <= 0 {
				continue
			}
			if before := last[k]; before.By != "" && s.From <= before.To { // one wait takes over from another
				s.From, s.To = min(s.From, before.From), max(s.To, before.To)
			}
			if last[k] = s; s.Length() > longest[k].Length() {
				longest[k] = s
			}
		}
	}
	return slices.DeleteFunc(longest, func(s Stretch) bool { return s.Length() <= 0 })
}

// gaps returns, in order, the times in which no holder is known, and no fault affects all workers. A
// gap ends where a lock may have been granted to a process that did not receive the grant: what
// follows is another gap.
func (c *closing) gaps() (all []Stretch) {
	var taken []Stretch
	for _, a := range c.acquisitions {
		taken = append(taken, Stretch{From: a.Returned, To: a.free(c.Length), After: a.ID, Died: a.Died != 0})
	}
	for _, f := range c.Faults {
		if f.Server != "" {
			taken = append(taken, Stretch{From: f.From, To: f.To + c.recovery})
		}
	}
	for _, w := range c.waits {
		if c.unknown(w) {
			taken = append(taken, Stretch{From: w.To, To: w.To})
		}
	}
	slices.SortFunc(taken, func(a, b Stretch) int { return cmp.Compare(a.From, b.From) })
	taken = append(taken, Stretch{From: c.Length, To: c.Length})
	last := Stretch{To: min(taken[0].From, c.waits[0].From)}
	for _, t := range taken {
		if t.From > last.To {
			all = append(all, Stretch{From: last.To, To: t.From, After: last.After, Died: last.Died})
		}
		if t.After == "" { // no holder: it is still the one before that left the lock
			t.After, t.Died = last.After, last.Died
		}
		if t.To >= last.To {
			last = t
		}
	}
	return all
}

// unknown reports whether the lock may have been granted to w, which did not receive the grant.
func (c *closing) unknown(w Wait) bool {
	return !w.Granted && (!w.Held || c.healed(w.Worker, w.From, w.To) != 0)
}

// shown returns the part of a gap in which w shows that the lock could not be acquired. A lock that
// is free does not close by itself: if w failed, it was closed since the gap began, unless w was not
// alone. Attempts at the same time can make one another fail.
func (c *closing) shown(w Wait, gap Stretch, alone bool) Stretch {
	s := Stretch{w.Name, max(gap.From, w.From), min(gap.To, w.To), gap.After, gap.Died, w.ID, w.Try}
	pending := !w.Granted && !w.Held && w.Text == "" // at the end of the history
	switch {
	case w.Granted, pending, w.To > gap.To:
		s.From = cmp.Or(c.healed(w.Worker, s.From, s.To), s.From)
	case c.unknown(w), w.Try && !alone:
		return Stretch{}
	case alone && w.From >= gap.From:
		s.From = gap.From
		if w.Try {
			s.To = w.From
		}
	}
	return s
}

// healed returns when a worker has recovered from the last fault that affects it within a time; 0 if
// there is none.
func (c *closing) healed(worker string, from, to time.Duration) (end time.Duration) {
	for _, f := range c.Faults {
		if f.From < to && f.To+c.recovery > from && (f.Server != "" || slices.Contains(f.Workers, worker)) {
			end = max(end, f.To+c.recovery)
		}
	}
	return end
}
