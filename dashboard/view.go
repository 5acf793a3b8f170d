package dashboard

import (
	"cmp"
	"encoding/json"
	"slices"
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
	Now         int64             `json:"now"`
	Held        int               `json:"held"`
	Waiting     int               `json:"waiting"`
	Names       int               `json:"names"`
	LongestWait int64             `json:"longest_wait"`
	Oldest      int64             `json:"oldest"`
	Lost        int               `json:"lost"`
	Late        int               `json:"late"`
	Rate        float64           `json:"rate"` // acquisitions per minute
	Took        float64           `json:"took"` // of the list, in ms
	Error       string            `json:"error,omitempty"`
	Matching    int               `json:"matching"` // rows that match the filter
	Order       []string          `json:"order"`    // names of the rows that are shown
	Rows        []json.RawMessage `json:"rows"`     // those that have changed
	Points      [][3]int64        `json:"points"`   // those that are new; before a point of -1, -1 nobody looked
	Hot         []hotView         `json:"hot"`
	Elections   []electionView    `json:"elections,omitempty"`
	Jobs        []jobView         `json:"jobs,omitempty"`
	JobError    string            `json:"job_error,omitempty"`
	JobsRead    bool              `json:"jobs_read,omitempty"`

	rows []rowView // all rows that are shown
}

type rowView struct {
	Name      string       `json:"name"`
	Shared    bool         `json:"shared,omitempty"`
	Limit     int          `json:"limit,omitempty"`
	NotBefore int64        `json:"not_before,omitempty"`
	Trouble   string       `json:"trouble,omitempty"`
	Holders   []holderView `json:"holders"`
	Waiters   []waiterView `json:"waiters"` // the first ones
	Waiting   int          `json:"waiting"`
	Rate      float64      `json:"rate,omitempty"`
	Strip     []stripView  `json:"strip"`
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

type stripView struct {
	From int64  `json:"from"`
	To   int64  `json:"to,omitempty"` // 0 while it is held
	Host string `json:"host"`
	Lost bool   `json:"lost,omitempty"`
}

type hotView struct {
	Name   string  `json:"name"`
	Waited float64 `json:"waited"` // seconds
}

type electionView struct {
	Name   string `json:"name"`
	Leader string `json:"leader,omitempty"`
	Note   string `json:"note,omitempty"`
	Term   int64  `json:"term,omitempty,string"`
	Since  int64  `json:"since,omitempty"`
	Others int    `json:"others"` // candidates that wait
	Terms  int    `json:"terms"`  // that were seen in the last five minutes
}

type jobView struct {
	Job    string `json:"job"`
	Tick   int64  `json:"tick,omitempty"`
	Next   int64  `json:"next,omitempty"`
	State  string `json:"state,omitempty"`
	Host   string `json:"host,omitempty"`
	Took   int64  `json:"took"` // -1 if it has not ended
	Error  string `json:"error,omitempty"`
	Paused string `json:"paused,omitempty"`
}

// query is what one window shows.
type query struct {
	filter string // in lower case
	jobs   bool
}

// sent is what a window already shows.
type sent struct {
	rows  map[string]string // by name, as JSON
	point time.Time
}

// view returns what a window shows, without what it has.
func (h *hub) view(q query, had *sent) update {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	u := h.past.view(q, now)
	for _, name := range h.cfg.Elections {
		if !h.past.at.IsZero() && strings.HasPrefix(name, h.cfg.Prefix) { // otherwise nobody knows who leads
			u.Elections = append(u.Elections, h.past.election(name))
		}
	}
	if q.jobs && !h.jobs.at.IsZero() {
		u.JobsRead = true
		for _, s := range h.jobs.list {
			u.Jobs = append(u.Jobs, viewJob(s))
		}
		if h.jobs.err != nil {
			u.JobError = h.jobs.err.Error()
		}
	}
	for _, p := range h.past.points {
		if !p.at.After(had.point) {
			continue
		}
		if p.gap {
			u.Points = append(u.Points, [3]int64{p.at.UnixMilli(), -1, -1})
		}
		u.Points = append(u.Points, [3]int64{p.at.UnixMilli(), int64(p.held), int64(p.waiting)})
		had.point = p.at
	}
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
	t := h.totals
	u := update{
		Now: now.UnixMilli(), Held: t.held, Waiting: t.waiting, Names: t.names,
		LongestWait: t.longestWait.Milliseconds(), Oldest: t.oldest.Milliseconds(),
		Lost: h.lost, Late: h.late, Rate: round(h.rate), Took: float64(h.took.Microseconds()) / 1000,
		Order: []string{}, Rows: []json.RawMessage{}, Points: [][3]int64{}, Hot: h.hottest(),
	}
	if h.err != nil {
		u.Error = h.err.Error()
	}
	for _, s := range h.list {
		if !q.matches(s) {
			continue
		}
		if u.Matching++; len(u.rows) < maxRows {
			u.rows = append(u.rows, h.row(s))
		}
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
		Name: s.Name, Shared: s.Mode == fencelock.Shared, Limit: s.Limit, NotBefore: millis(s.NotBefore),
		Holders: []holderView{}, Waiters: []waiterView{}, Waiting: len(s.Waiters), Strip: []stripView{},
	}
	if s.Trouble != nil {
		r.Trouble = s.Trouble.Error()
	}
	t := h.tracks[s.Name]
	if t == nil {
		t = new(track)
	}
	r.Rate = round(t.rate)
	for _, x := range t.holds {
		r.Strip = append(r.Strip, stripView{millis(x.from), millis(x.to), x.host, x.lost})
	}
	for _, x := range s.Holders {
		v := holderView{
			Owner: x.Owner, Token: x.Token, Host: x.Host, PID: x.PID, Note: x.Note, Since: millis(x.Since), Weight: x.Weight, Foreign: x.Foreign,
		}
		if i := slices.IndexFunc(t.holds, func(y hold) bool { return y.to.IsZero() && y.is(x) }); i >= 0 {
			v.Ends, v.Lease, v.Late = millis(t.holds[i].ends), t.holds[i].lease.Milliseconds(), t.holds[i].late
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
	slices.SortFunc(hot, func(a, b hotView) int {
		return cmp.Or(cmp.Compare(b.Waited, a.Waited), cmp.Compare(a.Name, b.Name))
	})
	return hot[:min(len(hot), maxHot)]
}

// election returns who leads. The term is the fencing token.
func (h *history) election(name string) electionView {
	v := electionView{Name: name}
	if t := h.tracks[name]; t != nil {
		v.Terms = len(t.holds)
	}
	for _, s := range h.list {
		if s.Name != name {
			continue
		}
		v.Others = len(s.Waiters)
		if len(s.Holders) > 0 {
			x := s.Holders[0]
			v.Leader, v.Note, v.Term, v.Since = x.Host, x.Note, x.Token, millis(x.Since)
		}
	}
	return v
}

// viewJob returns the row of a job.
func viewJob(s cron.Status) jobView {
	v := jobView{Job: s.Job, Tick: millis(s.Tick), Next: millis(s.Next), Took: -1}
	if r := s.Last; r != nil {
		v.State, v.Host, v.Error = string(r.State), r.Host, r.Error
		if !r.Ended.IsZero() {
			v.Took = r.Ended.Sub(r.Started).Milliseconds()
		}
	}
	if s.Paused != nil {
		v.Paused = "paused by " + s.Paused.Host + ": " + s.Paused.Reason
	}
	return v
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
