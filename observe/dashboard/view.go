package dashboard

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/cron"
)

const (
	maxRows  = 200 // rows that the page shows
	maxQueue = 20  // waiters of a row
	maxHot   = 6
)

// update is what the page shows after a look. Times are milliseconds since 1970, by the clock of
// this process or, for holders and waiters, that of the engine.
type update struct {
	sums
	Now       int64             `json:"now"`
	Matching  int               `json:"matching"` // rows that match the filter
	Order     []string          `json:"order"`    // names of the rows that are shown
	Rows      []json.RawMessage `json:"rows"`     // those that have changed
	Points    []point           `json:"points"`   // those that are new
	Hot       []hotView         `json:"hot"`
	Elections []rowView         `json:"elections,omitempty"`
	Jobs      []cron.Status     `json:"jobs,omitempty"`
	JobError  string            `json:"job_error,omitempty"`
	JobsRead  bool              `json:"jobs_read,omitempty"`

	rows []rowView // all rows that are shown
}

type rowView struct {
	Name      string       `json:"name"`
	Kind      string       `json:"kind,omitempty"`
	Shared    bool         `json:"shared,omitempty"`
	Limit     int          `json:"limit,omitempty"`
	NotBefore int64        `json:"not_before,omitempty"`
	Trouble   string       `json:"trouble,omitempty"`
	Holders   []holderView `json:"holders"`
	Waiters   []waiterView `json:"waiters"` // the first ones
	Waiting   int          `json:"waiting"`
	Rate      float64      `json:"rate,omitempty"`
	Strip     []hold       `json:"strip"`
}

type holderView struct {
	Owner   string `json:"owner"`
	Token   int64  `json:"token,string"` // beyond the integers of JavaScript
	Host    string `json:"host"`
	PID     int    `json:"pid,omitempty"`
	Note    string `json:"note,omitempty"`
	Since   int64  `json:"since,omitempty"`
	Ends    int64  `json:"ends,omitempty"` // of the lease
	Lease   int64  `json:"lease,omitempty"`
	Late    int    `json:"late,omitempty"`
	Most    int64  `json:"most,omitempty"` // end of the maximum hold
	Weight  int    `json:"weight,omitempty"`
	Foreign bool   `json:"foreign,omitempty"`
}

type waiterView struct {
	Host     string `json:"host"`
	PID      int    `json:"pid,omitempty"`
	Note     string `json:"note,omitempty"`
	Since    int64  `json:"since,omitempty"`
	Position int    `json:"position"`
}

type hotView struct {
	Name   string  `json:"name"`
	Waited float64 `json:"waited"` // seconds
}

// query is what one window shows.
type query struct {
	filter string // in lower case
	jobs   bool
}

// sent is what a window already shows.
type sent struct {
	rows  map[string]string // by name, as JSON
	point int64             // the time of the last point
}

// view returns what a window shows, without what it has.
func (h *hub) view(q query, had *sent) update {
	h.mu.Lock()
	defer h.mu.Unlock()
	u := h.past.view(q, time.Now())
	if q.jobs && !h.jobs.at.IsZero() {
		u.JobsRead, u.Jobs = true, h.jobs.list
		if h.jobs.err != nil {
			u.JobError = h.jobs.err.Error()
		}
	}
	for _, p := range h.past.points {
		if p[0] > had.point {
			u.Points = append(u.Points, p)
		}
	}
	had.point = h.past.at.UnixMilli()
	shown := make(map[string]string, len(u.rows))
	for _, r := range u.rows {
		text, err := json.Marshal(r)
		if err != nil { // no type of a row can fail
			panic(err)
		}
		if shown[r.Name] = string(text); had.rows[r.Name] != string(text) {
			u.Rows = append(u.Rows, text)
		}
		u.Order = append(u.Order, r.Name)
	}
	had.rows = shown
	return u
}

// view returns the sums and the rows.
func (h *history) view(q query, now time.Time) update {
	u := update{sums: h.sums, Now: now.UnixMilli(), Order: []string{}, Rows: []json.RawMessage{}, Points: []point{}, Hot: h.hottest()}
	for _, s := range h.list {
		if !q.matches(s) {
			continue
		}
		if u.Matching++; len(u.rows) < maxRows {
			u.rows = append(u.rows, h.row(s))
		}
	}
	if h.at.IsZero() {
		return u
	}
	for _, name := range slices.Sorted(maps.Keys(h.elections)) {
		s := h.names[name]
		s.Name = name
		u.Elections = append(u.Elections, h.row(s))
	}
	return u
}

// matches reports whether a name, or a host or note of it, contains the filter.
func (q query) matches(s fencelock.Status) bool {
	has := func(text string) bool { return strings.Contains(strings.ToLower(text), q.filter) }
	return q.filter == "" || has(s.Name) ||
		slices.ContainsFunc(s.Holders, func(x fencelock.Holder) bool { return has(x.Host) || has(x.Note) }) ||
		slices.ContainsFunc(s.Waiters, func(x fencelock.Waiter) bool { return has(x.Host) || has(x.Note) })
}

// row returns the row of a name.
func (h *history) row(s fencelock.Status) rowView {
	r := rowView{
		Name: s.Name, Kind: kindOf(s), Shared: s.Mode == fencelock.Shared, Limit: s.Limit, NotBefore: millis(s.NotBefore),
		Holders: []holderView{}, Waiters: []waiterView{}, Waiting: len(s.Waiters), Strip: []hold{},
	}
	if s.Trouble != nil {
		r.Trouble = s.Trouble.Error()
	}
	t := h.tracks[s.Name]
	if t == nil {
		t = new(track)
	}
	r.Rate, r.Strip = round(t.rate), append(r.Strip, t.holds...)
	for _, x := range s.Holders {
		v := holderView{
			Owner: x.Owner, Token: x.Token, Host: x.Host, PID: x.PID, Note: x.Note, Since: millis(x.Since), Most: millis(x.MaxUntil()), Weight: x.Weight, Foreign: x.Foreign,
		}
		if held := t.held(x); held != nil {
			v.Ends, v.Lease, v.Late = millis(held.ends), held.lease.Milliseconds(), held.late
		} else if x.TTL > 0 {
			v.Ends, v.Lease = h.at.Add(x.TTL).UnixMilli(), max(x.Lease, x.TTL).Milliseconds()
		}
		r.Holders = append(r.Holders, v)
	}
	for _, x := range s.Waiters[:min(len(s.Waiters), maxQueue)] {
		r.Waiters = append(r.Waiters, waiterView{x.Host, x.PID, x.Note, millis(x.Since), x.Position})
	}
	return r
}

// hottest returns the names that others waited for longest.
func (h *history) hottest() []hotView {
	hot := []hotView{}
	for name, t := range h.tracks {
		if t.waited >= 1 {
			hot = append(hot, hotView{name, round(t.waited)})
		}
	}
	sort.SliceStable(hot, func(i, j int) bool {
		a, b := hot[i], hot[j]
		return cmp.Or(cmp.Compare(b.Waited, a.Waited), cmp.Compare(a.Name, b.Name)) < 0
	})
	return hot[:min(len(hot), maxHot)]
}

// millis returns a time in milliseconds; 0 if it is unknown.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// round rounds to tenths.
func round(x float64) float64 { return float64(int64(x*10+0.5)) / 10 }
