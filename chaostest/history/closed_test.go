package history_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
)

// A scene is the history of one name.
type scene struct {
	acquisitions []history.Acquisition
	waits        []history.Wait
	faults       []history.Fault
	recovery     time.Duration
}

// held is an acquisition by worker w from one second to another.
func held(id string, from, to int) history.Acquisition {
	a := history.Acquisition{ID: id, Name: "n", Worker: "w", Called: sec(from), Returned: sec(from), Until: sec(to), Ended: sec(to)}
	a.Token = int64(from) + 1
	return a
}

// dead is one whose process died.
func dead(id string, from, to int) history.Acquisition {
	a := held(id, from, to)
	a.Ended, a.Died = 0, sec(to)
	return a
}

func sec(n int) time.Duration { return time.Duration(n) * time.Second }

// got is a wait that was granted, failed is one that others made fail.
func got(id, worker string, from, to int) history.Wait {
	return history.Wait{ID: id, Name: "n", Worker: worker, From: sec(from), To: sec(to), Granted: true}
}

func failed(worker string, from, to int) history.Wait {
	return history.Wait{ID: "failed", Name: "n", Worker: worker, From: sec(from), To: sec(to), Held: true}
}

func attempt(worker string, at int) history.Wait {
	w := failed(worker, at, at)
	w.To, w.Try = w.To+1, true
	return w
}

func TestClosed(t *testing.T) {
	died := func(w history.Wait) history.Wait {
		w.Held, w.Text = false, "the process died"
		return w
	}
	pending := func(w history.Wait) history.Wait {
		w.Held = false
		return w
	}
	freeze := func(worker string, from, to int) history.Fault {
		return history.Fault{What: "freeze", Workers: []string{worker}, From: sec(from), To: sec(to)}
	}
	server := history.Fault{What: "pause", Server: "redis", From: sec(5), To: sec(9)}
	two := []history.Acquisition{held("a", 0, 2), held("b", 10, 11)}
	for name, c := range map[string]struct {
		scene
		want int // seconds of the longest stretch
		died bool
		try  bool
	}{
		"nobody wants it":            {scene: scene{acquisitions: two, waits: []history.Wait{got("b", "w", 10, 10)}}},
		"a waiter":                   {scene: scene{acquisitions: two, waits: []history.Wait{got("b", "w", 3, 10)}}, want: 7},
		"a waiter from before":       {scene: scene{acquisitions: two, waits: []history.Wait{got("b", "w", 1, 10)}}, want: 8},
		"a dead holder":              {scene: scene{acquisitions: []history.Acquisition{dead("a", 0, 2), two[1]}, waits: []history.Wait{got("b", "w", 1, 10)}}, want: 8, died: true},
		"a waiter that gives up":     {scene: scene{acquisitions: two, waits: []history.Wait{failed("w", 3, 7)}}, want: 5},
		"waiters that give up early": {scene: scene{acquisitions: two, waits: []history.Wait{failed("w", 3, 4), failed("w", 5, 6), failed("w", 8, 9)}}, want: 7},
		"waiters that take over":     {scene: scene{acquisitions: two, waits: []history.Wait{failed("v", 3, 6), failed("w", 5, 9)}}, want: 6},
		"waiters with a pause":       {scene: scene{acquisitions: two, waits: []history.Wait{failed("u", 3, 5), failed("v", 3, 5), failed("w", 6, 9), failed("v", 6, 8)}}, want: 3},
		"an attempt":                 {scene: scene{acquisitions: two, waits: []history.Wait{attempt("w", 8)}}, want: 6, try: true},
		"attempts at the same time":  {scene: scene{acquisitions: two, waits: []history.Wait{attempt("v", 8), attempt("w", 8)}}},
		"an attempt while it is held": {scene: scene{
			acquisitions: two, waits: []history.Wait{attempt("w", 1)},
		}},
		"a waiter until the end":                   {scene: scene{acquisitions: two, waits: []history.Wait{pending(failed("w", 12, 20))}}, want: 8},
		"a waiter that was frozen":                 {scene: scene{acquisitions: two, waits: []history.Wait{got("b", "w", 1, 10)}, faults: []history.Fault{freeze("w", 1, 8)}}, want: 2},
		"another one was frozen":                   {scene: scene{acquisitions: two, waits: []history.Wait{got("b", "w", 1, 10)}, faults: []history.Fault{freeze("v", 1, 8)}}, want: 8},
		"the server stood still":                   {scene: scene{acquisitions: two, waits: []history.Wait{got("b", "w", 1, 10)}, faults: []history.Fault{server}}, want: 3},
		"a waiter died in between":                 {scene: scene{acquisitions: two, waits: []history.Wait{died(failed("v", 1, 7)), got("b", "w", 1, 10)}}, want: 5},
		"a waiter failed in a fault":               {scene: scene{acquisitions: two, waits: []history.Wait{failed("v", 1, 7), got("b", "w", 1, 10)}, faults: []history.Fault{freeze("v", 2, 3)}}, want: 5},
		"a waiter died, and nobody else wanted it": {scene: scene{acquisitions: two, waits: []history.Wait{died(failed("v", 3, 7))}}},
		"attempts while another one waits": {scene: scene{
			acquisitions: two, waits: []history.Wait{died(failed("v", 3, 9)), attempt("w", 4), attempt("w", 8)},
		}},
		"a fault within a fault": {scene: scene{
			acquisitions: two, waits: []history.Wait{got("b", "w", 1, 10)}, faults: []history.Fault{freeze("w", 1, 8), freeze("w", 2, 3)},
		}, want: 2},
		"a fault that came later": {scene: scene{
			acquisitions: two, waits: []history.Wait{failed("v", 1, 20)}, faults: []history.Fault{freeze("v", 14, 15)},
		}, want: 8},
		"a holder beside a longer one": {scene: scene{
			acquisitions: []history.Acquisition{held("a", 0, 6), held("c", 1, 2), two[1]}, waits: []history.Wait{got("b", "w", 1, 10)},
		}, want: 4},
		"others hold it again and again": {scene: scene{
			acquisitions: []history.Acquisition{held("a", 0, 2), held("b", 3, 5), held("c", 9, 10)}, waits: []history.Wait{failed("w", 1, 20)},
		}, want: 10},
		"a minimum hold": {scene: scene{acquisitions: []history.Acquisition{func() history.Acquisition {
			a := two[0]
			a.MinHold = sec(6)
			return a
		}(), two[1]}, waits: []history.Wait{got("b", "w", 1, 10)}}, want: 4},
		"a loss": {scene: scene{acquisitions: []history.Acquisition{func() history.Acquisition {
			a := two[0]
			a.Deadline, a.Lost, a.Ended = sec(4), sec(9), sec(9)
			return a
		}(), two[1]}, waits: []history.Wait{got("b", "w", 1, 10)}}, want: 6},
		"a dead holder and a waiter of its process": {scene: scene{
			acquisitions: []history.Acquisition{dead("a", 0, 2), two[1]}, waits: []history.Wait{died(failed("w", 1, 2)), got("b", "v", 1, 10)},
		}, want: 8, died: true},
		"a recovery after a fault": {scene: scene{
			acquisitions: two, waits: []history.Wait{got("b", "w", 1, 10)}, faults: []history.Fault{freeze("w", 1, 6)}, recovery: sec(1),
		}, want: 3},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history.History{Acquisitions: c.acquisitions, Waits: c.waits, Faults: c.faults, Length: sec(20)}
			var longest history.Stretch
			if all := h.Closed(c.recovery); len(all) > 0 {
				longest = all[0]
			}
			if got := longest.Length().Round(time.Second); got != sec(c.want) || longest.Died != c.died || longest.Try != c.try {
				t.Fatalf("%+v, want %d s", longest, c.want)
			}
			for _, bound := range []time.Duration{longest.Length() - 1, longest.Length()} {
				h.Judge(history.Rules{Death: bound, Closed: bound, Recovery: c.recovery, IgnoreMinHolds: true})
				found := slices.ContainsFunc(h.Violations, func(v history.Violation) bool {
					return v.Rule == map[bool]string{false: history.ClosedName, true: history.SlowDeath}[c.died]
				})
				if want := bound > 0 && bound < longest.Length(); found != want {
					t.Errorf("bound %v: %v", bound, h.Violations)
				}
			}
		})
	}
}
