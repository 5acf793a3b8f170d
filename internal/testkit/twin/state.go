package twin

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A Name is what the server keeps about one name, its clock and who listens.
type Name struct {
	Now                        int64 // microseconds
	Lock, Fence                Text
	Queue, Alive, Shared, Meta Set
	Marker                     Text
	Listening                  map[string]bool // clients
	Counts                     bool            // PUBLISH counts all subscribers
	Quarantine                 int64           // milliseconds; 0 means off
	Retention                  int64           // of a fence, in milliseconds
	Incarnation                string
	Said                       []string // messages of the last call, "client text"
	fence                      fence
	state, limit, holder       string // who holds: free, x, s with its limit, or foreign; and the text
	stands, weighted, dirty    bool
}

// Text is a string key.
type Text struct {
	Value string
	Until int64 // milliseconds; 0 means it is not there
}

// Set is a sorted set.
type Set struct {
	Scores map[string]int64
	Until  int64 // milliseconds; 0 means for ever
}

// Member is a member of a set.
type Member struct {
	Text  string
	Score int64
}

// sorted returns the members by score.
func (s *Set) sorted() []Member {
	list := make([]Member, 0, len(s.Scores))
	for _, text := range slices.Sorted(maps.Keys(s.Scores)) {
		list = append(list, Member{text, s.Scores[text]})
	}
	slices.SortStableFunc(list, func(a, b Member) int {
		switch {
		case a.Score < b.Score:
			return -1
		case a.Score > b.Score:
			return 1
		}
		return 0
	})
	return list
}

// first returns the member with the smallest score, last the one with the greatest.
func (s *Set) first() (m Member, ok bool) {
	for _, m := range s.sorted() {
		return m, true
	}
	return m, false
}

func (s *Set) last() (m Member, ok bool) {
	list := s.sorted()
	if len(list) == 0 {
		return m, false
	}
	return list[len(list)-1], true
}

func (s *Set) add(text string, score int64) {
	if s.Scores == nil {
		s.Scores = map[string]int64{}
	}
	s.Scores[text] = score
}

// remove takes a member out. An empty set is gone, and its end with it.
func (s *Set) remove(text string) bool {
	_, there := s.Scores[text]
	delete(s.Scores, text)
	if len(s.Scores) == 0 {
		s.Until = 0
	}
	return there
}

// expire lets a set end.
func (s *Set) expire(until, now int64) {
	switch {
	case len(s.Scores) == 0:
	case until <= now:
		*s = Set{}
	default:
		s.Until = until
	}
}

// place is the rank of a member, from 1; 0 means it is not there.
func (s *Set) place(text string) int {
	return slices.IndexFunc(s.sorted(), func(m Member) bool { return m.Text == text }) + 1
}

func (n *Name) ms() int64 { return floorDiv(n.Now, 1000) }

// floorDiv is the division that rounds down.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// ceilDiv is the division that rounds up.
func ceilDiv(a, b int64) int64 { return -floorDiv(-a, b) }

// Sweep lets the keys end whose time is over.
func (n *Name) Sweep() {
	for _, t := range []*Text{&n.Lock, &n.Fence, &n.Marker} {
		if t.Until <= n.ms() {
			*t = Text{}
		}
	}
	for _, s := range []*Set{&n.Queue, &n.Alive, &n.Shared, &n.Meta} {
		if s.Until > 0 && s.Until <= n.ms() {
			*s = Set{}
		}
	}
}

// Dump returns everything as text, one key a line.
func (n *Name) Dump() string {
	var b strings.Builder
	for i, t := range []Text{n.Lock, n.Fence, n.Marker} {
		if t.Until > 0 {
			fmt.Fprintf(&b, "%s=%s@%d\n", [...]string{"lock", "fence", "marker"}[i], t.Value, t.Until)
		}
	}
	for i, s := range []Set{n.Queue, n.Alive, n.Shared, n.Meta} {
		if len(s.Scores) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s=", [...]string{"queue", "alive", "shared", "meta"}[i])
		for _, m := range s.sorted() {
			fmt.Fprintf(&b, "%s|%d,", m.Text, m.Score)
		}
		fmt.Fprintf(&b, "@%d\n", s.Until)
	}
	return b.String()
}

// fence is what the fence key says.
type fence struct {
	last, granted int64
	grantee       string
	notBefore     int64
	resized       string // the limit for everybody; empty if requests say it
	version       int64
	sum, summed   int64 // the weight of so many shared holders
	barred        int64 // until when alive says who is barred (milliseconds)
	lined         bool
	lasts         int64  // until when the queue lives (milliseconds)
	told          string // who was told of more than a short lease: -, a client, or *
}

// readFence reads the key. Without one there may be a queue.
func readFence(text string) fence {
	f := fence{grantee: "-", lined: true, told: "*"}
	words := strings.Fields(text)
	if len(words) < 4 {
		return f
	}
	f.last, f.granted, f.grantee, f.notBefore = number(words[0]), number(words[1]), words[2], number(words[3])
	f.lined, f.told = false, ""
	for _, w := range words[4:] {
		switch rest := w[1:]; w[0] {
		case 'l':
			f.resized = rest
		case 'v':
			f.version = number(rest)
		case 'w':
			sum, n, _ := strings.Cut(rest, "/")
			f.sum, f.summed = number(sum), number(n)
		case 'b':
			f.barred = number(rest)
		case 'u':
			f.lasts = number(rest)
		case 'm':
			f.told = rest
		case 'q':
			f.lined = true
		}
	}
	switch {
	case !f.lined:
		f.told = "-"
	case f.told == "": // written by somebody else
		f.told = "*"
	}
	return f
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// commit writes the fence if it has changed, and takes a lock away that nobody has.
func (n *Name) commit() {
	if n.state == "free" && n.stands {
		n.Lock = Text{}
	}
	if !n.dirty {
		return
	}
	f := &n.fence
	if f.notBefore <= n.Now {
		f.notBefore = 0
	}
	if f.barred <= n.ms() {
		f.barred = 0
	}
	till := max(floorDiv(max(n.Now, f.last), 1000)+n.Retention, floorDiv(f.notBefore, 1000)+1000, f.barred)
	text := fmt.Sprintf("%d %d %s %d", f.last, f.granted, f.grantee, f.notBefore)
	if f.resized != "" {
		text += fmt.Sprintf(" l%s v%d", f.resized, f.version)
	}
	if n.weighted && f.summed > 0 {
		text += fmt.Sprintf(" w%d/%d", f.sum, f.summed)
	}
	if f.barred > 0 {
		text += fmt.Sprintf(" b%d", f.barred)
	}
	if f.lined {
		text += fmt.Sprintf(" u%d m%s q", f.lasts, f.told)
		till = max(till, f.lasts)
	}
	n.Fence = Text{text, till}
	if till <= n.ms() {
		n.Fence = Text{}
	}
}
