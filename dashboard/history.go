package dashboard

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/fencelock/fencelock"
)

const (
	stripSpan  = 5 * time.Minute  // how far back strips reach
	chartSpan  = 10 * time.Minute // how far back the chart reaches
	hotSpan    = 10 * time.Minute // how long a wait counts for the hot names
	rateSpan   = time.Minute      // the same for rates
	restSpan   = 10 * time.Second // how long a name is shown as free, so that rows do not flicker
	maxTracks  = 20_000           // names with a past; others show only the present
	maxHolds   = 120              // holds of a strip
	steadyEnds = 250 * time.Millisecond
)

// history is what the looks have shown. Its memory is bounded: see maxTracks and maxHolds.
type history struct {
	interval time.Duration
	leading  map[string]bool    // names of elections, whose candidates wait for good reason
	list     []fencelock.Status // the last list, and names that became free; most urgent first
	err      error              // of the last list
	at       time.Time          // of the last list without an error; zero before it
	took     time.Duration
	expected time.Time // when the next look should come at the latest; later ones leave a gap
	tracks   map[string]*track
	points   []point // of the chart
	lost     int     // holds that were lost between two looks
	late     int     // renewals that were late
	rate     float64 // acquisitions per minute that were seen
	totals   totals
}

// totals are the sums of one list.
type totals struct {
	held, waiting, names int
	longestWait, oldest  time.Duration
}

// point is a point of the chart. Before a point with a gap, nobody looked.
type point struct {
	at            time.Time
	held, waiting int
	gap           bool
}

// track is the past of one name.
type track struct {
	holds  []hold  // oldest first
	waited float64 // seconds that others waited; it fades within hotSpan
	rate   float64 // acquisitions per minute that were seen
}

// hold is one acquisition.
type hold struct {
	owner string
	token int64
	host  string
	from  time.Time
	to    time.Time     // zero while it is held
	ends  time.Time     // of the lease at the last look; zero without a lease
	lease time.Duration // the whole lease, or the most that was left
	late  int           // late renewals
	slow  bool          // whether the renewal is late now
	lost  bool
}

func newHistory(cfg Config) history {
	h := history{interval: cfg.Interval, leading: map[string]bool{}, tracks: map[string]*track{}}
	for _, name := range cfg.Elections {
		h.leading[name] = true
	}
	return h
}

// add adds a list that was read at a time.
func (h *history) add(list []fencelock.Status, err error, now time.Time, took time.Duration) {
	h.err, h.took = err, took
	if err != nil && list == nil {
		return
	}
	elapsed, gap := now.Sub(h.at), h.at.IsZero() || now.After(h.expected)
	h.at, h.expected = now, now.Add(4*max(h.interval, share*took))
	if gap {
		elapsed = 0
	}
	h.list, h.totals = list, h.sum(list, now)
	begun := h.follow(now, elapsed, gap)
	h.list = slices.Concat(h.list, h.resting(now))
	h.rate = fade(h.rate, elapsed, rateSpan) + float64(begun)
	h.points = append(h.points, point{now, h.totals.held, h.totals.waiting, gap})
	h.points = slices.DeleteFunc(h.points, func(p point) bool { return now.Sub(p.at) > chartSpan })
	slices.SortStableFunc(h.list, func(a, b fencelock.Status) int {
		return cmp.Or(-cmp.Compare(h.urgency(a, now), h.urgency(b, now)), cmp.Compare(a.Name, b.Name))
	})
}

// sum adds a list up. Candidates of an election do not count as waiting, nor the leader as old.
func (h *history) sum(list []fencelock.Status, now time.Time) (t totals) {
	t.names = len(list)
	for _, s := range list {
		t.held += len(s.Holders)
		if h.leading[s.Name] {
			continue
		}
		t.waiting += len(s.Waiters)
		t.longestWait = max(t.longestWait, longestWait(s, now))
		for _, holder := range s.Holders {
			t.oldest = max(t.oldest, age(holder.Since, now))
		}
	}
	return t
}

// follow brings the tracks up to date and returns how many holds have begun.
func (h *history) follow(now time.Time, elapsed time.Duration, gap bool) (begun int) {
	present := make(map[string]bool, len(h.list))
	for _, s := range h.list {
		present[s.Name] = true
		t := h.tracks[s.Name]
		if t == nil && len(h.tracks) < maxTracks {
			t = new(track)
			h.tracks[s.Name] = t
		}
		if t != nil {
			begun += h.compare(t, s, now, elapsed, gap)
		}
	}
	for name, t := range h.tracks {
		if !present[name] {
			h.compare(t, fencelock.Status{}, now, elapsed, gap)
		}
		t.holds = slices.DeleteFunc(t.holds, func(x hold) bool { return !x.to.IsZero() && now.Sub(x.to) > stripSpan })
		if !present[name] && len(t.holds) == 0 {
			delete(h.tracks, name)
		}
	}
	return begun
}

// resting returns the names that became free a moment ago.
func (h *history) resting(now time.Time) (free []fencelock.Status) {
	present := make(map[string]bool, len(h.list))
	for _, s := range h.list {
		present[s.Name] = true
	}
	for name, t := range h.tracks {
		if n := len(t.holds); !present[name] && n > 0 && now.Sub(t.holds[n-1].to) < restSpan {
			free = append(free, fencelock.Status{Name: name})
		}
	}
	return free
}

// compare brings one track up to date and returns how many holds have begun. After a gap, it counts
// nothing.
func (h *history) compare(t *track, s fencelock.Status, now time.Time, elapsed time.Duration, gap bool) (begun int) {
	if t.waited = fade(t.waited, elapsed, hotSpan); !h.leading[s.Name] {
		t.waited += float64(len(s.Waiters)) * elapsed.Seconds()
	}
	t.rate = fade(t.rate, elapsed, rateSpan)
	for i := range t.holds {
		x := &t.holds[i]
		if !x.to.IsZero() || slices.ContainsFunc(s.Holders, x.is) {
			continue
		}
		x.to = now.Add(-elapsed / 2) // somewhere between the two looks
		if x.lost = !gap && !x.ends.IsZero() && !now.Before(x.ends); x.lost {
			h.lost++
		}
	}
	for _, holder := range s.Holders {
		i := slices.IndexFunc(t.holds, func(x hold) bool { return x.to.IsZero() && x.is(holder) })
		if i < 0 {
			i = len(t.holds)
			t.holds = append(t.holds, hold{owner: holder.Owner, token: holder.Token, host: holder.Host, from: begin(holder.Since, now)})
			if !gap {
				begun++
			}
		}
		h.late += t.holds[i].renewed(holder, now)
	}
	t.rate += float64(begun)
	if extra := len(t.holds) - maxHolds; extra > 0 {
		t.holds = slices.Delete(t.holds, 0, extra)
	}
	return begun
}

// is reports whether a holder is this acquisition. Owners of other programs may repeat.
func (x *hold) is(holder fencelock.Holder) bool {
	return x.owner == holder.Owner && x.token == holder.Token
}

// renewed takes over the lease of a holder. It returns 1 when a renewal becomes late: locks are
// renewed after a third of their lease, and less than half of it is left.
func (x *hold) renewed(holder fencelock.Holder, now time.Time) int {
	if holder.TTL <= 0 {
		x.ends, x.lease, x.slow = time.Time{}, 0, false
		return 0
	}
	x.lease = cmp.Or(holder.Lease, max(x.lease, holder.TTL))
	if ends := now.Add(holder.TTL); ends.Sub(x.ends).Abs() > steadyEnds { // a list that took longer is not a change
		x.ends = ends
	}
	was := x.slow
	if x.slow = holder.TTL < x.lease/2; x.slow && !was {
		x.late++
		return 1
	}
	return 0
}

// urgency orders the rows: what is in trouble, then long waits, then the rest. Waits of similar
// length are equal, so that rows stay where they are.
func (h *history) urgency(s fencelock.Status, now time.Time) int {
	if s.Trouble != nil {
		return 100
	}
	if t := h.tracks[s.Name]; t != nil && slices.ContainsFunc(t.holds, func(x hold) bool { return x.slow && x.to.IsZero() }) {
		return 99
	}
	if len(s.Waiters) == 0 || h.leading[s.Name] {
		return 0
	}
	return 1 + bits.Len(uint(longestWait(s, now)/(4*time.Second)))
}

func longestWait(s fencelock.Status, now time.Time) (longest time.Duration) {
	for _, w := range s.Waiters {
		longest = max(longest, age(w.Since, now))
	}
	return longest
}

// age returns how long ago a time was; 0 if it is unknown, or ahead because of another clock.
func age(since, now time.Time) time.Duration {
	if since.IsZero() {
		return 0
	}
	return max(0, now.Sub(since))
}

// begin returns when a hold began, as far as the engine reports it.
func begin(since, now time.Time) time.Time {
	if since.IsZero() || since.After(now) {
		return now
	}
	return since
}

// fade returns what is left of a sum of which a part is forgotten all the time.
func fade(sum float64, elapsed, span time.Duration) float64 {
	return sum * math.Exp(-elapsed.Seconds()/span.Seconds())
}
