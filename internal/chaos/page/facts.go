package page

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
)

// lockRows is how many locks have a row of their own in the pictures.
const lockRows = 16

// facts are what the page says about a history.
type facts struct {
	history.History
	stats   history.Stats
	start   time.Duration         // of what the page shows; workers can start before the history does
	stop    time.Duration         // and end after it
	granted []history.Acquisition // in the order of their grants
	index   map[string]int        // of an acquisition, by its ID
	workers []history.Worker      // the lanes
	lanes   map[string]int        // by the name of the worker
	locks   []lock                // those with the most violations first, then by use
	rows    []lock                // the first of them, which have a row of their own
	places  map[string]int        // of the locks, by their names
	base    int64                 // what tokens are counted from on the bars
	marks   []mark                // violations and what is expected, in the order of time
	bad     int                   // how many of the marks are violations
	losses  []loss
}

// A lock is a name with the indexes of its acquisitions.
type lock struct {
	name    string
	granted []int
	marks   int
}

// A mark is a violation, or what the rules of the run allow. It knows the indexes of its
// acquisitions, or -1, and until when it lasts.
type mark struct {
	history.Violation
	id            string
	expected      bool
	before, after int
	to            time.Duration
}

// class is how the page shows a mark.
func (m mark) class() string {
	if m.expected {
		return "expected"
	}
	return "bad"
}

// A loss is a lost acquisition and the next one that it excluded, or -1.
type loss struct {
	id           string
	holder, next int
	stopped      time.Duration // when the holder stopped relying on it: at the signal, or at its deadline
	margin       time.Duration // from then until the next grant
	class        string        // how the page shows it if the signal came too late: bad or expected
}

func gather(h *history.History) *facts {
	f := &facts{History: *h, stats: h.Stats(), stop: h.Length, index: map[string]int{}, lanes: map[string]int{}, places: map[string]int{}}
	f.granted, f.Faults = slices.Clone(h.Acquisitions), slices.Clone(h.Faults)
	sort.SliceStable(f.granted, func(i, j int) bool { return f.granted[i].Returned < f.granted[j].Returned })
	sort.SliceStable(f.Faults, func(i, j int) bool { return f.Faults[i].From < f.Faults[j].From })
	for _, w := range h.Workers {
		f.addLane(w)
	}
	least := int64(math.MaxInt64)
	for i, a := range f.granted {
		f.index[a.ID] = i
		least = min(least, a.Token)
		f.start, f.stop = min(f.start, a.Called), max(f.stop, f.end(a), a.Ended)
	}
	for _, w := range h.Waits {
		f.start, f.stop = min(f.start, w.From), max(f.stop, w.To)
	}
	if len(f.granted) > 0 && least >= 1e6 { // such tokens, as those of PostgreSQL, are too wide for a bar
		f.base = least
	}
	f.findMarks()
	f.sortLocks()
	for _, l := range f.locks {
		f.findLosses(l)
	}
	sort.SliceStable(f.losses, func(i, j int) bool { return f.losses[i].stopped < f.losses[j].stopped })
	for i := range f.losses {
		f.losses[i].id = id("L", i)
	}
	return f
}

// id names a violation, a loss or a fault by its index.
func id(letter string, i int) string { return letter + strconv.Itoa(i+1) }

// addLane adds a lane for a worker that has none yet.
func (f *facts) addLane(w history.Worker) {
	if _, ok := f.lanes[w.Name]; !ok {
		f.lanes[w.Name] = len(f.workers)
		f.workers = append(f.workers, w)
	}
}

func (f *facts) findMarks() {
	add := func(v history.Violation, expected bool) {
		m := mark{Violation: v, expected: expected, before: f.find(v.Before), after: f.find(v.After), to: v.At}
		if v.Rule == history.Overlap && m.before >= 0 && m.after >= 0 {
			m.to = max(v.At, min(f.granted[m.before].Until, f.granted[m.after].Until))
		}
		f.marks = append(f.marks, m)
	}
	for _, v := range f.Violations {
		add(v, false)
	}
	for _, v := range f.Expected {
		add(v, true)
	}
	sort.SliceStable(f.marks, func(i, j int) bool { return f.marks[i].At < f.marks[j].At })
	for i := range f.marks {
		if f.marks[i].expected {
			f.marks[i].id = id("E", i-f.bad)
		} else {
			f.marks[i].id = id("V", f.bad)
			f.bad++
		}
	}
}

// find returns the index of an acquisition, or -1.
func (f *facts) find(id string) int {
	if i, ok := f.index[id]; ok {
		return i
	}
	return -1
}

func (f *facts) sortLocks() {
	byName := map[string]*lock{}
	get := func(name string) *lock {
		if byName[name] == nil {
			byName[name] = &lock{name: name}
		}
		return byName[name]
	}
	for i, a := range f.granted {
		f.addLane(history.Worker{Name: a.Worker})
		get(a.Name).granted = append(get(a.Name).granted, i)
	}
	for _, w := range f.Waits {
		f.addLane(history.Worker{Name: w.Worker})
		get(w.Name)
	}
	for _, m := range f.marks {
		if l := byName[m.Name]; l != nil {
			l.marks++
		}
	}
	for _, l := range byName {
		f.locks = append(f.locks, *l)
	}
	sort.Slice(f.locks, func(i, j int) bool {
		a, b := &f.locks[i], &f.locks[j]
		return cmp.Or(b.marks-a.marks, len(b.granted)-len(a.granted), cmp.Compare(a.name, b.name)) < 0
	})
	for i, l := range f.locks {
		f.places[l.name] = i
	}
	f.rows = f.locks[:min(len(f.locks), lockRows)]
}

func (f *facts) findLosses(l lock) {
	for k, i := range l.granted {
		a := f.granted[i]
		if a.Lost == 0 {
			continue
		}
		x := loss{holder: i, next: f.next(l, k), stopped: a.Lost}
		if a.Deadline != 0 {
			x.stopped = min(a.Lost, a.Deadline)
		}
		if x.next >= 0 {
			x.margin = f.granted[x.next].Returned - x.stopped
		}
		for _, m := range f.marks {
			if m.Rule == history.LateLoss && m.before == i {
				x.class = m.class()
			}
		}
		f.losses = append(f.losses, x)
	}
}

// next returns the acquisition after the k-th of a lock that the k-th one excludes, or -1.
func (f *facts) next(l lock, k int) int {
	shared := f.granted[l.granted[k]].Shared
	for _, i := range l.granted[k+1:] {
		if !shared || !f.granted[i].Shared {
			return i
		}
	}
	return -1
}

// end returns when a holder stopped holding, as the page shows it.
func (f *facts) end(a history.Acquisition) time.Duration {
	switch {
	case a.Lost != 0 && a.Deadline != 0:
		return max(a.Returned, a.Until, min(a.Lost, a.Deadline))
	case a.Lost != 0:
		return max(a.Returned, a.Until, a.Lost)
	}
	return max(a.Returned, a.Until, a.Died)
}

// cause returns the last fault that hit a worker at a time or less than a TTL before, or -1.
func (f *facts) cause(t time.Duration, worker string) int {
	for i, x := range slices.Backward(f.Faults) {
		if x.From <= t && t <= x.To+f.TTL && hits(x, worker) {
			return i
		}
	}
	return -1
}

// hits reports whether a fault is about a worker. One without workers is about all.
func hits(x history.Fault, worker string) bool {
	return len(x.Workers) == 0 || slices.Contains(x.Workers, worker)
}

// token formats the token of an acquisition as on the bars.
func (f *facts) token(i int) string {
	t := f.granted[i].Token
	if f.base == 0 {
		return strconv.FormatInt(t, 10)
	}
	return "+" + strconv.FormatUint(uint64(t)-uint64(f.base), 10)
}
