package dashboard

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/watch"
)

const (
	stripSpan  = 5 * time.Minute  // how far back strips reach
	chartSpan  = 10 * time.Minute // how far back the chart reaches
	hotSpan    = 10 * time.Minute // how long a wait counts for the hot names
	rateSpan   = time.Minute      // the same for rates
	restSpan   = 10 * time.Second // how long a name is shown as free, so that rows do not flicker
	maxTracks  = 20_000           // names with a past; others show only the present
	maxHolds   = 120              // holds of a strip; the script has the same number
	steadyEnds = 250 * time.Millisecond

	maxElections = 100
)

// history is what the looks have shown. Its memory is bounded: see maxTracks, maxHolds and
// maxElections.
type history struct {
	interval  time.Duration
	elections map[string]bool             // their candidates wait for good reason
	list      []fencelock.Status          // the last list, and names that became free; most urgent first
	names     map[string]fencelock.Status // the last list by name
	at        time.Time                   // of the last list without an error; zero before it
	ended     time.Time                   // when holds ended that the last list no longer shows
	expected  time.Time                   // when the next look should come at the latest; later ones leave a gap
	tracks    map[string]*track
	points    []point // of the chart
	rate      float64 // acquisitions per minute that were seen
	sums      sums
}

// sums are those of the last list, and of all lists. Durations are in milliseconds.
type sums struct {
	Held        int     `json:"held"`
	Waiting     int     `json:"waiting"`
	Names       int     `json:"names"`
	LongestWait int64   `json:"longest_wait"`
	Oldest      int64   `json:"oldest"`
	Lost        int     `json:"lost"`            // holds that were lost between two looks
	Late        int     `json:"late"`            // renewals that were late
	Rate        float64 `json:"rate"`            // acquisitions per minute
	Took        float64 `json:"took"`            // how long the list took
	Error       string  `json:"error,omitempty"` // of the list
}

// point is a point of the chart: the time, the holders and the waiters. -1 for both means that
// nobody looked before this time.
type point [3]int64

// track is the past of one name.
type track struct {
	holds  []hold  // oldest first
	waited float64 // seconds that others waited; it fades within hotSpan
	rate   float64 // acquisitions per minute that were seen
}

// hold is one acquisition. The page gets the exported fields.
type hold struct {
	From int64  `json:"from"`
	To   int64  `json:"to,omitempty"` // 0 while it is held
	Host string `json:"host"`
	Lost bool   `json:"lost,omitempty"`

	owner string
	token int64
	ends  time.Time     // of the lease at the last look; zero without a lease
	lease time.Duration // the whole lease, or the most that was left
	late  int           // late renewals
	slow  bool          // whether the renewal is late now
}

func newHistory(cfg Config) history {
	h := history{interval: cfg.Interval, elections: map[string]bool{}, tracks: map[string]*track{}}
	for _, name := range cfg.Elections {
		if strings.HasPrefix(name, cfg.Prefix) { // otherwise nobody knows who leads
			h.elections[name] = true
		}
	}
	return h
}

// add adds a list that was read at a time.
func (h *history) add(list []fencelock.Status, err error, now time.Time, took time.Duration) {
	h.sums.Took, h.sums.Error = float64(took.Microseconds())/1000, ""
	if err != nil {
		h.sums.Error = err.Error()
		if list == nil {
			return
		}
	}
	elapsed, gap := now.Sub(h.at), h.at.IsZero() || now.After(h.expected)
	h.ended = now.Add(-elapsed / 2) // somewhere between the two looks
	if gap {
		h.ended = h.at // nobody saw it later
	}
	h.at, h.expected = now, now.Add(4*(watch.Pause(h.interval, took)+took))
	if gap {
		elapsed = 0
		h.points = append(h.points, point{now.UnixMilli(), -1, -1})
	}
	list = slices.DeleteFunc(list, func(s fencelock.Status) bool { return kindOf(s) == fencelock.KindCheck })
	h.sum(list, now)
	h.rate = fade(h.rate, elapsed, rateSpan) + float64(h.follow(now, elapsed, gap))
	h.sums.Rate = round(h.rate)
	h.points = append(h.points, point{now.UnixMilli(), int64(h.sums.Held), int64(h.sums.Waiting)})
	h.points = slices.DeleteFunc(h.points, func(p point) bool { return p[0] < now.Add(-chartSpan).UnixMilli() })
	h.list = slices.Concat(list, h.resting(now))
	sort.SliceStable(h.list, func(i, j int) bool {
		a, b := h.list[i], h.list[j]
		return cmp.Or(-cmp.Compare(h.urgency(a, now), h.urgency(b, now)), cmp.Compare(a.Name, b.Name)) < 0
	})
}

// sum adds a list up. Candidates of an election do not count as waiting, nor the leader as old.
func (h *history) sum(list []fencelock.Status, now time.Time) {
	t := &h.sums
	t.Held, t.Waiting, t.Names, t.LongestWait, t.Oldest = 0, 0, len(list), 0, 0
	h.names = make(map[string]fencelock.Status, len(list))
	for _, s := range list {
		h.names[s.Name] = s
		t.Held += len(s.Holders)
		if kindOf(s) == fencelock.KindElection && len(h.elections) < maxElections {
			h.elections[s.Name] = true
		}
		if h.elections[s.Name] {
			continue
		}
		t.Waiting += len(s.Waiters)
		t.LongestWait = max(t.LongestWait, longestWait(s, now).Milliseconds())
		for _, holder := range s.Holders {
			t.Oldest = max(t.Oldest, age(holder.Since, now).Milliseconds())
		}
	}
}

// kindOf returns what a lock is for.
func kindOf(s fencelock.Status) (kind string) {
	for _, x := range s.Holders {
		kind = cmp.Or(kind, x.Kind)
	}
	for _, x := range s.Waiters {
		kind = cmp.Or(kind, x.Kind)
	}
	return kind
}

// follow brings the tracks up to date and returns how many holds have begun.
func (h *history) follow(now time.Time, elapsed time.Duration, gap bool) (begun int) {
	for name := range h.names {
		if h.tracks[name] == nil && len(h.tracks) < maxTracks {
			h.tracks[name] = new(track)
		}
	}
	for name, t := range h.tracks {
		s, present := h.names[name]
		begun += h.compare(t, s, now, elapsed, gap)
		t.holds = slices.DeleteFunc(t.holds, func(x hold) bool { return x.To != 0 && x.To < now.Add(-stripSpan).UnixMilli() })
		if !present && len(t.holds) == 0 {
			delete(h.tracks, name)
		}
	}
	return begun
}

// resting returns the names that became free a moment ago.
func (h *history) resting(now time.Time) (free []fencelock.Status) {
	for name, t := range h.tracks {
		_, present := h.names[name]
		if n := len(t.holds); !present && n > 0 && t.holds[n-1].To > now.Add(-restSpan).UnixMilli() {
			free = append(free, fencelock.Status{Name: name})
		}
	}
	return free
}

// compare brings one track up to date and returns how many holds have begun. After a gap, it counts
// nothing.
func (h *history) compare(t *track, s fencelock.Status, now time.Time, elapsed time.Duration, gap bool) (begun int) {
	if t.waited = fade(t.waited, elapsed, hotSpan); !h.elections[s.Name] {
		t.waited += float64(len(s.Waiters)) * elapsed.Seconds()
	}
	t.rate = fade(t.rate, elapsed, rateSpan)
	for i := range t.holds {
		x := &t.holds[i]
		if x.To != 0 || slices.ContainsFunc(s.Holders, x.is) {
			continue
		}
		x.To = max(x.From, h.ended.UnixMilli())
		if x.Lost = !gap && !x.ends.IsZero() && !now.Before(x.ends); x.Lost {
			h.sums.Lost++
		}
	}
	for _, holder := range s.Holders {
		x := t.held(holder)
		if x == nil {
			t.holds = append(t.holds, hold{owner: holder.Owner, token: holder.Token, Host: holder.Host, From: now.Add(-age(holder.Since, now)).UnixMilli()})
			x = &t.holds[len(t.holds)-1]
			if !gap {
				begun++
			}
		}
		h.sums.Late += x.renewed(holder, now)
	}
	t.rate += float64(begun)
	if extra := len(t.holds) - maxHolds; extra > 0 {
		t.holds = slices.Delete(t.holds, 0, extra)
	}
	return begun
}

// held returns the hold of a holder, or nil.
func (t *track) held(holder fencelock.Holder) *hold {
	i := slices.IndexFunc(t.holds, func(x hold) bool { return x.To == 0 && x.is(holder) })
	if i < 0 {
		return nil
	}
	return &t.holds[i]
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
	if t := h.tracks[s.Name]; t != nil && slices.ContainsFunc(t.holds, func(x hold) bool { return x.slow && x.To == 0 }) {
		return 99
	}
	if len(s.Waiters) == 0 || h.elections[s.Name] {
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

// age returns how long ago a time was; 0 if it is unknown, or in the future since clocks differ.
func age(since, now time.Time) time.Duration {
	if since.IsZero() {
		return 0
	}
	return max(0, now.Sub(since))
}

// fade returns what is left of a sum of which a part is forgotten all the time.
func fade(sum float64, elapsed, span time.Duration) float64 {
	return sum * math.Exp(-elapsed.Seconds()/span.Seconds())
}
