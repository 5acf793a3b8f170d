package history_test

import (
	"maps"
	"math"
	"testing"

	"github.com/fencelock/fencelock/chaostest/history"
)

func TestStats(t *testing.T) {
	h := &history.History{
		Workers: []string{"v", "w"},
		Writes:  []history.Event{{Name: "n", Token: 4}, {Name: "n", Token: 1, Refused: true, From: 1, At: 1}},
		Length:  sec(200),
	}
	for i := range 100 { // waits of 0 to 99 s; those of four more are 0
		a := held("", 100, 101)
		a.Called, a.Worker = sec(i+1), "w"
		h.Acquisitions = append(h.Acquisitions, a)
	}
	frozen, shared := held("frozen", 110, 111), held("shared", 120, 121)
	frozen.Deadline, frozen.Lost = sec(115), sec(130)
	shared.Shared, shared.Lost, shared.Deadline = true, sec(122), sec(124)
	also := held("also", 123, 124)
	also.Shared = true
	h.Acquisitions = append(h.Acquisitions, frozen, shared, also, held("last", 125, 126))
	s := h.Stats()
	if s.Acquisitions != 104 || s.WaitP50 != sec(48) || s.WaitP99 != sec(98) {
		t.Errorf("%+v", s)
	}
	if s.Losses != 2 || s.Margin != (history.Margin{Known: true, By: sec(3), Before: "shared", Next: "last"}) {
		t.Errorf("%d losses, %+v", s.Losses, s.Margin)
	}
	if s.Signal != (history.Margin{Known: true, By: -sec(10), Before: "frozen", Next: "shared"}) {
		t.Errorf("%+v", s.Signal)
	}
	if s.Accepted != 1 || s.Refused != 1 {
		t.Errorf("%d accepted, %d refused", s.Accepted, s.Refused)
	}
	if len(s.Turns) != 2 || s.Turns["v"] != 0 || s.Turns["w"] != 104 || math.Abs(s.Fairness-0.5) > 1e-9 {
		t.Errorf("%v, fairness %v", s.Turns, s.Fairness)
	}
}

// TestAdd: a run that was interrupted may lack workers, and one may have no figures at all.
func TestAdd(t *testing.T) {
	of := func(worker string, waits ...int) *history.History {
		h := &history.History{Workers: []string{worker, "idle"}}
		for i, wait := range waits {
			a := held("", 100*i, 100*i+1)
			a.Worker, a.Called = worker, a.Returned-sec(wait)
			h.Acquisitions = append(h.Acquisitions, a)
		}
		return h
	}
	s := (&history.History{}).Stats()
	if s.Fairness != 0 || s.Margin.Known {
		t.Errorf("without workers: %+v", s)
	}
	s.Add(of("v", 1, 2, 3).Stats())
	s.Add(of("w", 4).Stats())
	s.Add((&history.History{}).Stats())
	if want := map[string]int{"v": 3, "w": 1, "idle": 0}; s.Acquisitions != 4 || s.WaitP50 != sec(3) || s.WaitP99 != sec(4) || !maps.Equal(s.Turns, want) {
		t.Errorf("%+v", s)
	}
	if want := 16.0 / 30; math.Abs(s.Fairness-want) > 1e-9 {
		t.Errorf("fairness %v, want %v", s.Fairness, want)
	}
}

// TestExpected: where two holders are possible, overlaps are counted, and a token that is not
// greater than one that was known before is a violation.
func TestExpected(t *testing.T) {
	overlap := []history.Acquisition{grant(1, 0, 1, 3), grant(2, 1, 2, 4)}
	both := []history.Acquisition{grant(2, 0, 1, 3), grant(1, 1, 2, 4)} // called before the other one returned
	disorder := []history.Acquisition{grant(2, 0, 1, 2), grant(1, 2, 3, 4)}
	for _, c := range []struct {
		all            []history.Acquisition
		found, allowed int
	}{{overlap, 0, 1}, {disorder, 1, 0}, {both, 0, 2}} {
		h := &history.History{Acquisitions: c.all}
		h.Judge(history.Rules{TwoHolders: true})
		if len(h.Violations) != c.found || len(h.Expected) != c.allowed {
			t.Errorf("violations %v, expected %v", h.Violations, h.Expected)
		}
		if n := h.Stats().Found; n[history.Overlap]+n[history.TokenOrder] != c.found+c.allowed {
			t.Errorf("%v", n)
		}
	}
	h := &history.History{Wrong: []history.Event{{Worker: "w", Text: "odd"}}}
	if h.Judge(history.Rules{TwoHolders: true}); len(h.Violations) != 1 || h.Violations[0].Rule != history.WrongError {
		t.Errorf("%v", h.Violations)
	}
}
