package history

import (
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

// closed calls see with the stretches of all names, one for each gap.
func (h *History) closed(see func(Stretch)) {
	faults := newTroubles(h.Faults, h.Rules.Recovery)
	names := map[string]*closing{}
	of := func(name string) *closing {
		if names[name] == nil {
			names[name] = &closing{faults: faults}
		}
		return names[name]
	}
	for _, a := range h.Acquisitions {
		c := of(a.Name)
		c.known = append(c.known, gap{a.holds(h.Length), a.ID, a.Died != 0})
	}
	for _, w := range h.Waits {
		c := of(w.Name)
		c.waits = append(c.waits, w)
	}
	for _, c := range names {
		for _, s := range c.stretches(h.Length) {
			see(s)
		}
	}
}

// A closing finds the stretches of one name.
type closing struct {
	faults *troubles
	known  []gap // holds, not gaps
	waits  []Wait
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
	taken := slices.Clone(c.known)
	for _, s := range c.faults.all {
		taken = append(taken, gap{span: s})
	}
	for _, w := range c.waits {
		if c.unknown(w) {
			taken = append(taken, gap{span: span{w.To, w.To}})
		}
	}
	sort.Slice(taken, func(i, j int) bool { return taken[i].from < taken[j].from })
	taken = append(taken, gap{span: span{length, length}})
	if len(c.waits) == 0 {
		return nil
	}
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

// troubles are the times at which faults affect workers.
type troubles struct {
	all    []span            // those of servers, which affect all
	worker map[string][]span // for each worker, with those of all; merged and in order
	faults []Fault
}

func newTroubles(faults []Fault, recovery time.Duration) *troubles {
	t := &troubles{worker: map[string][]span{}, faults: slices.Clone(faults)}
	for i := range t.faults {
		f := &t.faults[i]
		f.To += recovery
		if f.Server != "" {
			t.all = append(t.all, span{f.From, f.To})
		}
	}
	return t
}

// last returns when the last fault that affects a worker within s ends.
func (t *troubles) last(worker string, s span) (end time.Duration, ok bool) {
	spans, known := t.worker[worker]
	if !known {
		spans = t.of(worker)
		t.worker[worker] = spans
	}
	i := sort.Search(len(spans), func(i int) bool { return spans[i].from >= s.to }) - 1
	if i < 0 || spans[i].to <= s.from {
		return 0, false
	}
	return spans[i].to, true
}

// of returns when faults affect a worker.
func (t *troubles) of(worker string) (merged []span) {
	spans := slices.Clone(t.all)
	for _, f := range t.faults {
		if slices.Contains(f.Workers, worker) {
			spans = append(spans, span{f.From, f.To})
		}
	}
	sort.Slice(spans, func(i, j int) bool { return spans[i].from < spans[j].from })
	for _, s := range spans {
		if n := len(merged); n > 0 && s.from <= merged[n-1].to {
			merged[n-1].to = max(merged[n-1].to, s.to)
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}
