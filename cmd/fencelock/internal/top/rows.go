//go:build unix

package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
)

// view is what the user has chosen to see.
type view struct {
	rows     []row // of the names that are shown
	names    table
	name     string // of the row of the cursor, if the user has chosen it
	filter   string
	waited   bool // only names with waiters
	order    int  // index of orders
	reversed bool

	pane    string // the name whose holders and queue are shown; "" if the pane is closed
	members table
	owner   string // of the row of its cursor

	prompt   *prompt // nil without a question
	help     bool
	paused   bool
	pasting  bool // the terminal sends pasted text
	breaking bool // a break has no result yet
	message  string
}

// row is a name of the listing. Its times are those at the answer of the engine.
type row struct {
	fencelock.Status
	wait   time.Duration // the longest
	oldest member        // zero if nobody holds the name
	next   member        // whose lease expires first; zero without leases
}

// member is a holder, or a waiter with its place in the queue.
type member struct {
	fencelock.Holder
	age   time.Duration
	place int
}

// late reports whether a renewal is late: a lock is renewed when a third of its lease is over. A
// hand-over begins with a short lease.
func (m member) late() bool { return m.TTL > 0 && m.TTL < m.Lease/2 && m.age > m.Lease/2 }

// orders are the ways to sort, in the order of the key s, by the head of a column. Rows that are
// equal are sorted by name.
var orders = []struct {
	head    string
	compare func(a, b row) int
}{
	{"WAIT", func(a, b row) int { return cmp.Compare(b.wait, a.wait) }},
	{"AGE", func(a, b row) int { return cmp.Compare(b.oldest.age, a.oldest.age) }},
	{"LEASE", func(a, b row) int { return cmp.Compare(uint64(a.next.TTL-1), uint64(b.next.TTL-1)) }}, // those without a lease last
	{"N", func(a, b row) int { return cmp.Compare(len(b.Waiters), len(a.Waiters)) }},
	{"HOLDER", func(a, b row) int { return cmp.Compare(a.holder(), b.holder()) }},
	{"NAME", func(a, b row) int { return 0 }},
}

// arrange selects and sorts the rows again. The cursor stays on a name that the user has chosen.
func (t *top) arrange() {
	t.rows = t.rows[:0]
	for _, s := range t.list {
		if matches(s, t.filter) && (!t.waited || len(s.Waiters) > 0) {
			t.rows = append(t.rows, rowOf(s, t.at))
		}
	}
	compare := orders[t.order].compare
	slices.SortFunc(t.rows, func(a, b row) int {
		c := cmp.Or(compare(a, b), cmp.Compare(a.Name, b.Name))
		if t.reversed {
			return -c
		}
		return c
	})
	if i := slices.IndexFunc(t.rows, func(r row) bool { return r.Name == t.name }); i >= 0 {
		t.names.cursor = i
	} else {
		t.name = ""
	}
	t.names.move(0, len(t.rows))
}

// rowOf returns the row of a name.
func rowOf(s fencelock.Status, now time.Time) row {
	r := row{Status: s}
	for _, m := range membersOf(s, now) {
		switch {
		case m.place > 0:
			r.wait = max(r.wait, m.age)
			continue
		case r.oldest.Owner == "" || m.age > r.oldest.age:
			r.oldest = m
		}
		if m.TTL > 0 && (r.next.TTL == 0 || m.TTL < r.next.TTL) {
			r.next = m
		}
	}
	return r
}

// membersOf returns the holders and then the waiters of a name. The clock of the engine may differ
// from now.
func membersOf(s fencelock.Status, now time.Time) (all []member) {
	add := func(h fencelock.Holder, place int) {
		m := member{Holder: h, place: place}
		if !h.Since.IsZero() {
			m.age = max(0, now.Sub(h.Since))
		}
		all = append(all, m)
	}
	for _, h := range s.Holders {
		add(h, 0)
	}
	for i, w := range s.Waiters {
		add(fencelock.Holder{Identity: w.Identity, Owner: w.Owner, Since: w.Since, Weight: w.Weight}, i+1)
	}
	return all
}

// matches reports whether a name, or a host or note of it, contains the filter, in any case. After
// an exclamation mark, it reports the opposite.
func matches(s fencelock.Status, filter string) bool {
	filter, not := strings.CutPrefix(strings.ToLower(filter), "!")
	found := strings.Contains(strings.ToLower(s.Name), filter)
	for _, m := range membersOf(s, time.Time{}) {
		found = found || strings.Contains(strings.ToLower(m.Host+"\x00"+m.Note), filter)
	}
	return filter == "" || found != not
}

// shown returns what the open pane shows, and moves its cursor by some rows. The cursor stays on
// its owner.
func (t *top) shown(by int) (fencelock.Status, []member) {
	s := t.status(t.pane)
	all := membersOf(s, t.at)
	if i := slices.IndexFunc(all, func(m member) bool { return m.Owner == t.owner }); i >= 0 {
		t.members.cursor = i
	}
	t.members.move(by, len(all))
	if t.owner = ""; t.members.cursor < len(all) {
		t.owner = all[t.members.cursor].Owner
	}
	return s, all
}

// status returns a name of the last listing.
func (t *top) status(name string) fencelock.Status {
	byName := func(s fencelock.Status, name string) int { return cmp.Compare(s.Name, name) }
	if i, found := slices.BinarySearchFunc(t.list, name, byName); found {
		return t.list[i]
	}
	return fencelock.Status{Name: name}
}

// holder returns the oldest holder and how many others there are.
func (r row) holder() string {
	switch n := len(r.Holders); n {
	case 0:
		return "-"
	case 1:
		return r.oldest.process()
	default:
		return fmt.Sprintf("%s +%d", r.oldest.process(), n-1)
	}
}

// mode returns the mode of a name, with its limit.
func (r row) mode() string {
	if r.Limit > 0 {
		return fmt.Sprintf("%s/%d", r.Mode, r.Limit)
	}
	return r.Mode.String()
}

// note returns the note of the oldest holder, or what is more important than that.
func (r row) note() string {
	switch {
	case r.Trouble != nil:
		return "may have changed: " + line(r.Trouble)
	case len(r.Holders) == 0 && !r.NotBefore.IsZero():
		return "minimum hold until " + clock(r.NotBefore)
	}
	return text(r.oldest.Note)
}
