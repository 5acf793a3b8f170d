package history

import (
	"cmp"
	"slices"
	"time"
)

// A joiner makes a history of events in the order of their times.
type joiner struct {
	h      *History
	waits  map[string]int // places in h.Waits by ID, of those that have not ended
	holds  map[string]int // places in h.Acquisitions by ID, of those that have not ended
	faults map[string]int // places in h.Faults by ID, of those that have not ended
}

// join makes the history of its events. If none of them is a Start, the first one is.
func (h *History) join() {
	if len(h.Events) == 0 {
		return
	}
	slices.SortStableFunc(h.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	h.Origin = h.Events[0].At
	if at := slices.IndexFunc(h.Events, func(e Event) bool { return e.Kind == Start }); at >= 0 {
		h.Origin = h.Events[at].At
	}
	h.Length = cmp.Or(h.Length, h.Events[len(h.Events)-1].At-h.Origin)
	j := joiner{h, map[string]int{}, map[string]int{}, map[string]int{}}
	for _, e := range h.Events {
		for _, at := range []*time.Duration{&e.At, &e.Until, &e.From} {
			if *at != 0 { // there is one
				*at -= h.Origin
			}
		}
		j.add(e)
	}
	slices.Sort(h.Workers)
}

func (j *joiner) add(e Event) {
	h := j.h
	if e.Worker != "" && !slices.Contains(h.Workers, e.Worker) {
		h.Workers = append(h.Workers, e.Worker)
	}
	switch e.Kind {
	case Call:
		j.waits[e.ID] = len(h.Waits)
		h.Waits = append(h.Waits, Wait{ID: e.ID, Name: e.Name, Worker: e.Worker, From: e.At, To: h.Length, Try: e.Try})
	case Failed:
		j.answered(e)
	case Grant:
		j.holds[e.ID] = len(h.Acquisitions)
		h.Acquisitions = append(h.Acquisitions, Acquisition{
			ID: e.ID, Name: e.Name, Worker: e.Worker, Shared: e.Shared, Limit: e.Limit, Token: e.Token,
			MinHold: e.MinHold, Called: j.answered(e), Returned: e.At,
		})
	case Alive, Lost, End:
		j.held(e)
	case Write:
		e.From = cmp.Or(e.From, e.At)
		h.Writes = append(h.Writes, e)
	case Birth, Death:
		j.process(e)
	case Wrong:
		h.Wrong = append(h.Wrong, e)
	case Injected:
		j.faults[e.ID] = len(h.Faults)
		h.Faults = append(h.Faults, Fault{What: e.Name, Workers: e.Workers, Server: e.Server, From: e.At, To: h.Length, Text: e.Text})
	case Healed:
		if at, ok := j.faults[e.ID]; ok {
			h.Faults[at].To = e.At
			delete(j.faults, e.ID)
		}
	}
}

// answered ends the wait of e, and returns when it began: at e if its call was not recorded.
func (j *joiner) answered(e Event) (called time.Duration) {
	at, ok := j.waits[e.ID]
	if !ok {
		return e.At
	}
	delete(j.waits, e.ID)
	w := &j.h.Waits[at]
	w.To, w.Granted, w.Held, w.Text = e.At, e.Kind == Grant, e.Held, e.Text
	return w.From
}

// held adds what a holder recorded about its acquisition.
func (j *joiner) held(e Event) {
	at, ok := j.holds[e.ID]
	if !ok {
		return
	}
	switch a := &j.h.Acquisitions[at]; e.Kind {
	case Alive:
		a.Until = e.At
	case Lost:
		a.Lost, a.Deadline, a.Cause = e.At, e.Until, e.Text
	case End:
		a.Ended = e.At
		delete(j.holds, e.ID)
	}
}

// process adds a birth or a death. Either is the end of what the worker did before.
func (j *joiner) process(e Event) {
	for id, at := range j.waits {
		if w := &j.h.Waits[at]; w.Worker == e.Worker {
			w.To, w.Text = e.At, "the process died"
			delete(j.waits, id)
		}
	}
	for id, at := range j.holds {
		if a := &j.h.Acquisitions[at]; a.Worker == e.Worker {
			a.Died = e.At
			delete(j.holds, id)
		}
	}
}
