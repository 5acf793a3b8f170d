package page

import (
	"cmp"
	"maps"
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
	index   map[string]int        // of an acquisition, by its ID, from 1 on
	lanes   map[string]int        // by the name of the worker
	locks   []string              // those with the most violations first, then by use
	places  map[string]int        // of the locks, by their names
	base    int64                 // what tokens are counted from on the bars
	marks   []mark                // violations and what is expected, in the order of time
}

// A mark is a violation, or what the rules of the run allow. It knows the indexes of its
// acquisitions, or -1, and until when it lasts. Its class is bad or expected.
type mark struct {
	history.Violation
	id, class     string
	before, after int
	to            time.Duration
}

func gather(h *history.History) *facts {
	f := &facts{History: *h, stats: h.Stats(), stop: h.Length, index: map[string]int{}, lanes: map[string]int{}, places: map[string]int{}}
	f.granted, f.Faults = slices.Clone(h.Acquisitions), slices.Clone(h.Faults)
	sort.SliceStable(f.granted, func(i, j int) bool { return f.granted[i].Returned < f.granted[j].Returned })
	sort.SliceStable(f.Faults, func(i, j int) bool { return f.Faults[i].From < f.Faults[j].From })
	for i, w := range h.Workers {
		f.lanes[w] = i
	}
	least := int64(math.MaxInt64)
	for i, a := range f.granted {
		f.index[a.ID] = i + 1
		least = min(least, a.Token)
		f.start, f.stop = min(f.start, a.Called), max(f.stop, end(a), a.Ended)
	}
	for _, w := range h.Waits {
		f.start, f.stop = min(f.start, w.From), max(f.stop, w.To)
	}
	if len(f.granted) > 0 && least >= 1e6 { // such tokens, as those of PostgreSQL, are too wide for a bar
		f.base = least
	}
	f.addMarks("bad", "V", f.Violations)
	f.addMarks("expected", "E", f.Expected)
	sort.SliceStable(f.marks, func(i, j int) bool { return f.marks[i].At < f.marks[j].At })
	f.sortLocks()
	return f
}

// id names a violation, a loss or a fault by its index.
func id(letter string, i int) string { return letter + strconv.Itoa(i+1) }

func (f *facts) addMarks(class, letter string, all []history.Violation) {
	for i, v := range all {
		m := mark{v, id(letter, i), class, f.find(v.Before), f.find(v.After), v.At}
		if v.Rule == history.Overlap && m.before >= 0 && m.after >= 0 {
			m.to = max(v.At, min(f.granted[m.before].Until, f.granted[m.after].Until))
		}
		f.marks = append(f.marks, m)
	}
}

// find returns the index of an acquisition, or -1.
func (f *facts) find(id string) int { return f.index[id] - 1 }

func (f *facts) sortLocks() {
	uses, marks := map[string]int{}, map[string]int{}
	for _, w := range f.Waits {
		uses[w.Name]++
	}
	for _, a := range f.granted {
		uses[a.Name]++
	}
	for _, m := range f.marks {
		marks[m.Name]++
	}
	f.locks = slices.AppendSeq([]string{}, maps.Keys(uses))
	slices.SortFunc(f.locks, func(a, b string) int {
		return cmp.Or(marks[b]-marks[a], uses[b]-uses[a], cmp.Compare(a, b))
	})
	for i, name := range f.locks {
		f.places[name] = i
	}
}

// end returns when a holder stopped holding, as the page shows it.
func end(a history.Acquisition) time.Duration {
	return max(a.Returned, a.Until, cmp.Or(a.Stopped(), a.Died))
}

// cause returns the last fault that hit a worker at a time or less than a TTL before, as ", after F2
// (freeze)", or "".
func (f *facts) cause(t time.Duration, worker string) string {
	for i, x := range slices.Backward(f.Faults) {
		if x.From <= t && t <= x.To+f.TTL && hits(x, worker) {
			return ", after " + id("F", i) + " (" + x.What + ")"
		}
	}
	return ""
}

// hits reports whether a fault is about a worker. One without workers is about all.
func hits(x history.Fault, worker string) bool {
	return len(x.Workers) == 0 || slices.Contains(x.Workers, worker)
}

// hit returns the lanes of the workers that a fault is about.
func (f *facts) hit(x history.Fault) []int {
	lanes := []int{}
	for i, w := range f.Workers {
		if hits(x, w) {
			lanes = append(lanes, i)
		}
	}
	return lanes
}
