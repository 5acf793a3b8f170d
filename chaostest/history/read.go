package history

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Read joins the event files of all processes of a run. A folder stands for the .jsonl files in it.
// The history starts with its first event; see also [History.StartAt]. A file that [History.Write]
// wrote must be the only one.
func Read(files ...string) (*History, error) {
	files, err := expand(files)
	if err != nil {
		return nil, err
	}
	var events []Event
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if len(files) == 1 && bytes.HasPrefix(text, []byte(runPrefix)) {
			return decode(bytes.NewReader(text))
		}
		more, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		events = append(events, more...)
	}
	return join(events), nil
}

// expand replaces folders by the files in them.
func expand(files []string) (all []string, err error) {
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			all = append(all, name)
			continue
		}
		within, err := filepath.Glob(filepath.Join(name, "*.jsonl"))
		if err != nil {
			return nil, err
		}
		all = append(all, within...)
	}
	return all, nil
}

// parse parses the lines of a file. The last one may be incomplete, after a kill.
func parse(text []byte) (events []Event, err error) {
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		events = append(events, e)
	}
	return events, nil
}

// A joiner makes a history of events in the order of their times.
type joiner struct {
	h     *History
	waits map[string]int   // places in h.Waits by ID, of those that have not ended
	holds map[string]int   // places in h.Acquisitions by ID, of those that have not ended
	lanes map[string]*lane // by worker
}

// A lane is what is known about a worker.
type lane struct {
	Worker
	open map[string]bool // the IDs of its waits and acquisitions that have not ended
}

func join(events []Event) *History {
	if len(events) == 0 {
		return &History{}
	}
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	last := events[len(events)-1].At
	j := joiner{h: &History{Length: last}, waits: map[string]int{}, holds: map[string]int{}, lanes: map[string]*lane{}}
	for _, e := range events {
		j.add(e)
	}
	for _, at := range j.waits {
		j.h.Waits[at].To = last
	}
	for _, name := range slices.Sorted(maps.Keys(j.lanes)) {
		j.h.Workers = append(j.h.Workers, j.lanes[name].Worker)
	}
	j.h.StartAt(events[0].At)
	return j.h
}

func (j *joiner) add(e Event) {
	h := j.h
	switch e.Kind {
	case Call:
		j.waits[e.ID] = len(h.Waits)
		h.Waits = append(h.Waits, Wait{ID: e.ID, Name: e.Name, Worker: e.Worker, From: e.At, Try: e.Try})
		j.lane(e.Worker).open[e.ID] = true
	case Failed:
		if w := j.answered(e); w != nil {
			w.Held, w.Text = e.Held, e.Text
		}
	case Grant:
		j.granted(e)
	case Alive, Lost, End:
		if at, ok := j.holds[e.ID]; ok {
			j.held(&h.Acquisitions[at], e)
		}
	case Write:
		h.Writes = append(h.Writes, GuardedWrite{
			ID: e.ID, Name: e.Name, Worker: e.Worker, Token: e.Token,
			From: cmp.Or(e.From, e.At), At: e.At, Value: e.Value, Refused: e.Refused,
		})
	case Birth, Death:
		j.process(e)
	case Wrong:
		h.Wrong = append(h.Wrong, e)
	case Injected:
		h.Faults = append(h.Faults, Fault{
			What: e.Text, Workers: e.Workers, Server: e.Server, From: e.At, To: max(e.At, e.Until), Text: e.Why,
		})
	}
}

// lane returns the lane of a worker.
func (j *joiner) lane(worker string) *lane {
	l := j.lanes[worker]
	if l == nil {
		l = &lane{Worker{Name: worker}, map[string]bool{}}
		j.lanes[worker] = l
	}
	return l
}

// answered ends the wait of e, and returns it: nil if its call was not recorded.
func (j *joiner) answered(e Event) *Wait {
	at, ok := j.waits[e.ID]
	delete(j.lane(e.Worker).open, e.ID)
	if !ok {
		return nil
	}
	delete(j.waits, e.ID)
	w := &j.h.Waits[at]
	w.To = e.At
	return w
}

func (j *joiner) granted(e Event) {
	a := Acquisition{
		ID: e.ID, Name: e.Name, Worker: e.Worker, Shared: e.Shared, Limit: e.Limit, Token: e.Token,
		MinHold: e.MinHold, Called: e.At, Returned: e.At,
	}
	if w := j.answered(e); w != nil {
		w.Granted, a.Called = true, w.From
	}
	j.holds[e.ID] = len(j.h.Acquisitions)
	j.h.Acquisitions = append(j.h.Acquisitions, a)
	j.lane(e.Worker).open[e.ID] = true
}

// held adds what a holder recorded about its acquisition.
func (j *joiner) held(a *Acquisition, e Event) {
	switch e.Kind {
	case Alive:
		a.Until = max(a.Until, e.At)
	case Lost:
		a.Lost, a.Deadline, a.Cause = e.At, e.Until, e.Text
	case End:
		a.Ended = e.At
		delete(j.holds, e.ID)
		delete(j.lane(e.Worker).open, e.ID)
	}
}

// process adds a birth or a death. Either is the end of what the lane did before.
func (j *joiner) process(e Event) {
	l := j.lane(e.Worker)
	for id := range l.open {
		if at, ok := j.waits[id]; ok {
			j.h.Waits[at].To, j.h.Waits[at].Text = e.At, "the process died"
			delete(j.waits, id)
		}
		if at, ok := j.holds[id]; ok {
			j.h.Acquisitions[at].Died = e.At
			delete(j.holds, id)
		}
	}
	clear(l.open)
	if e.Kind == Death {
		l.Deaths = append(l.Deaths, e.At)
		return
	}
	l.Births, l.Host = append(l.Births, e.At), e.Host
}

// StartAt makes origin, by the clock of [Now], the start of h. What happened before has a negative
// time.
func (h *History) StartAt(origin time.Duration) {
	by := origin - h.Origin
	h.Origin, h.Length = origin, h.Length-by
	move := func(times ...*time.Duration) {
		for _, at := range times {
			*at -= by
		}
	}
	optional := func(times ...*time.Duration) { // 0 says that there is none
		for _, at := range times {
			if *at != 0 {
				*at -= by
			}
		}
	}
	for i := range h.Workers {
		for _, times := range [][]time.Duration{h.Workers[i].Births, h.Workers[i].Deaths} {
			for k := range times {
				move(&times[k])
			}
		}
	}
	for i := range h.Acquisitions {
		a := &h.Acquisitions[i]
		move(&a.Called, &a.Returned)
		optional(&a.Until, &a.Lost, &a.Deadline, &a.Ended, &a.Died)
	}
	for i := range h.Waits {
		move(&h.Waits[i].From, &h.Waits[i].To)
	}
	for i := range h.Writes {
		move(&h.Writes[i].From, &h.Writes[i].At)
	}
	for i := range h.Faults {
		move(&h.Faults[i].From, &h.Faults[i].To)
	}
	for i := range h.Wrong {
		move(&h.Wrong[i].At)
	}
	for _, all := range [][]Violation{h.Violations, h.Expected} {
		for i := range all {
			move(&all[i].At)
		}
	}
}

// A record is a line of a written history: the run, and then all else.
type record struct {
	Run         *History      `json:"run,omitempty"`
	Acquisition *Acquisition  `json:"acquisition,omitempty"`
	Wait        *Wait         `json:"wait,omitempty"`
	Write       *GuardedWrite `json:"write,omitempty"`
	Fault       *Fault        `json:"fault,omitempty"`
	Wrong       *Event        `json:"wrong,omitempty"`
	Violation   *Violation    `json:"violation,omitempty"`
	Expected    *Violation    `json:"expected,omitempty"`
}

const runPrefix = `{"run":`

// Write writes h as JSON lines, which Read reads.
func (h *History) Write(w io.Writer) error {
	buffer := bufio.NewWriter(w)
	lines := json.NewEncoder(buffer)
	err := lines.Encode(record{Run: h})
	each(&err, lines, h.Acquisitions, func(a *Acquisition) record { return record{Acquisition: a} })
	each(&err, lines, h.Waits, func(a *Wait) record { return record{Wait: a} })
	each(&err, lines, h.Writes, func(a *GuardedWrite) record { return record{Write: a} })
	each(&err, lines, h.Faults, func(a *Fault) record { return record{Fault: a} })
	each(&err, lines, h.Wrong, func(a *Event) record { return record{Wrong: a} })
	each(&err, lines, h.Violations, func(a *Violation) record { return record{Violation: a} })
	each(&err, lines, h.Expected, func(a *Violation) record { return record{Expected: a} })
	return cmp.Or(err, buffer.Flush())
}

// each writes a line for each item, until there is an error.
func each[T any](err *error, lines *json.Encoder, items []T, of func(*T) record) {
	for i := range items {
		if *err == nil {
			*err = lines.Encode(of(&items[i]))
		}
	}
}

// decode reads what Write wrote.
func decode(r io.Reader) (*History, error) {
	h := &History{}
	lines := json.NewDecoder(r)
	for {
		var l record
		switch err := lines.Decode(&l); {
		case errors.Is(err, io.EOF):
			return h, nil
		case err != nil:
			return nil, err
		}
		if l.Run != nil {
			h = l.Run
		}
		h.Acquisitions = add(h.Acquisitions, l.Acquisition)
		h.Waits = add(h.Waits, l.Wait)
		h.Writes = add(h.Writes, l.Write)
		h.Faults = add(h.Faults, l.Fault)
		h.Wrong = add(h.Wrong, l.Wrong)
		h.Violations = add(h.Violations, l.Violation)
		h.Expected = add(h.Expected, l.Expected)
	}
}

// add appends an item, if there is one.
func add[T any](items []T, item *T) []T {
	if item == nil {
		return items
	}
	return append(items, *item)
}
