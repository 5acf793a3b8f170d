package history

import (
	"cmp"
	"maps"
	"slices"
	"sort"
)

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
	sort.SliceStable(events, func(i, j int) bool { return events[i].At < events[j].At })
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
			What: e.Text, Workers: e.Workers, Server: e.Server, From: e.At, To: max(e.At, e.Until),
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
