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

// A span is a time.
type span struct{ from, to time.Duration }

// A gap is a time in which no holder of a name is known, and no fault affects all workers. It ends
// where a lock may have been granted to a process that did not receive the grant: what follows is
// another gap.
type gap struct {
	span
	after string
	died  bool
}

// holds returns when the acquisition may have excluded others: its minimum hold included.
func (a Acquisition) holds(end time.Duration) span {
	switch {
	case a.Lost != 0:
		end = max(a.Until, a.believedUntil())
	case a.Ended != 0:
		end = a.Ended
	case a.Died != 0:
		end = a.Died
	}
	if a.MinHold > 0 {
		end = max(end, a.Returned+a.MinHold)
	}
	return span{a.Returned, max(end, a.Returned)}
}

// closed returns the stretches of all names, one for each gap. The longest comes first.
func (h *History) closed() (all []Stretch) {
	faults := slices.Clone(h.Faults)
	for i := range faults {
		faults[i].To += h.Rules.Recovery
	}
	acquisitions := byName(h.Acquisitions, func(a Acquisition) string { return a.Name })
	for name, waits := range byName(h.Waits, func(w Wait) string { return w.Name }) {
		c := closing{faults, acquisitions[name], waits}
		all = append(all, c.stretches(h.Length)...)
	}
	slices.SortFunc(all, func(a, b Stretch) int {
		return cmp.Or(cmp.Compare(b.Length(), a.Length()), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// A closing finds the stretches of one name.
type closing struct {
	faults       troubles
	acquisitions []Acquisition
	waits        []Wait // at least one
}

func (c *closing) stretches(length time.Duration) (all []Stretch) {
	sort.Slice(c.waits, func(i, j int) bool { return c.waits[i].From < c.waits[j].From })
	gaps := c.gaps(length)
	longest, last := make([]Stretch, len(gaps)), make([]Stretch, len(gaps))
	busy := time.Duration(math.MinInt64) // when the earlier waits have ended
	for i, w := range c.waits {
		alone := w.From > busy && (i+1 == len(c.waits) || c.waits[i+1].From > w.To)
		busy = max(busy, w.To)
		first := sort.Search(len(gaps), func(k int) bool { return gaps[k].to > w.From })
		for k := first; k < len(gaps) && gaps[k].from < w.To; k++ {
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

// gaps returns the gaps in order.
func (c *closing) gaps(length time.Duration) (all []gap) {
	var taken []gap // holds, not gaps
	for _, a := range c.acquisitions {
		taken = append(taken, gap{a.holds(length), a.ID, a.Died != 0})
	}
	for _, f := range c.faults {
		if f.Server != "" {
			taken = append(taken, gap{span: span{f.From, f.To}})
		}
	}
	for _, w := range c.waits {
		if c.unknown(w) {
			taken = append(taken, gap{span: span{w.To, w.To}})
		}
	}
	sort.Slice(taken, func(i, j int) bool { return taken[i].from < taken[j].from })
	taken = append(taken, gap{span: span{length, length}})
	last := gap{span: span{to: min(taken[0].from, c.waits[0].From)}}
	for _, t := range taken {
		if t.from > last.to {
			all = append(all, gap{span{last.to, t.from}, last.after, last.died})
		}
		if t.after == "" { // no holder: it is still the one before that left the lock
			t.after, t.died = last.after, last.died
		}
		if t.to >= last.to {
			last = t
		}
	}
	return all
}

// unknown reports whether the lock may have been granted to w, which did not receive the grant.
func (c *closing) unknown(w Wait) bool {
	if w.Granted {
		return false
	}
	_, affected := c.faults.last(w.Worker, span{w.From, w.To})
	return affected || !w.Held
}

// shown returns the part of g in which w shows that the lock could not be acquired. A lock that is
// free does not close by itself: if w failed, it was closed since the gap began, unless w was not
// alone. Attempts at the same time can make one another fail.
func (c *closing) shown(w Wait, g gap, alone bool) Stretch {
	s := Stretch{w.Name, max(g.from, w.From), min(g.to, w.To), g.after, g.died, w.ID, w.Try}
	pending := !w.Granted && !w.Held && w.Text == "" // at the end of the history
	end, affected := c.faults.last(w.Worker, span{s.From, s.To})
	switch {
	case w.Granted, pending, w.To > g.to:
		if affected {
			s.From = end
		}
	case c.unknown(w), w.Try && !alone:
		return Stretch{}
	case alone && w.From >= g.from:
		s.From = g.from
		if w.Try {
			s.To = w.From
		}
	}
	return s
}

// troubles are the faults, each until the recovery from it.
type troubles []Fault

// last returns when the last fault that affects a worker within s ends.
func (t troubles) last(worker string, s span) (end time.Duration, affected bool) {
	for _, f := range t {
		if f.From < s.to && f.To > s.from && (f.Server != "" || slices.Contains(f.Workers, worker)) {
			end, affected = max(end, f.To), true
		}
	}
	return end, affected
}
