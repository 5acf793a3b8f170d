package history_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/chaostest/history"
)

func TestGoodHistories(t *testing.T) {
	for seed := range uint64(150) {
		h := good(seed)
		h.Judge(bounds)
		if len(h.Violations)+len(h.Undecided) > 0 {
			t.Fatalf("seed %d: %v, undecided %q", seed, h.Violations, h.Undecided)
		}
	}
}

// A pair is an acquisition and the next one of its name.
type pair struct{ a, b *history.Acquisition }

// pairsOf returns the pairs in which both are exclusive, and which is true for the first one.
func pairsOf(h *history.History, which func(a *history.Acquisition) bool) (all []pair) {
	last := map[string]*history.Acquisition{}
	for i := range h.Acquisitions { // they are in the order of their tokens
		b := &h.Acquisitions[i]
		if a := last[b.Name]; a != nil && !a.Shared && !b.Shared && which(a) {
			all = append(all, pair{a, b})
		}
		last[b.Name] = b
	}
	return all
}

// delay delays all that happened to a name after a moment, except calls that came before.
func delay(h *history.History, name string, after, by time.Duration) {
	move := func(times ...*time.Duration) {
		for _, at := range times {
			if *at > after {
				*at += by
			}
		}
	}
	for i := range h.Acquisitions {
		if a := &h.Acquisitions[i]; a.Name == name {
			move(&a.Called, &a.Returned, &a.Until, &a.Lost, &a.Deadline, &a.Ended, &a.Died)
		}
	}
	for i := range h.Waits {
		if w := &h.Waits[i]; w.Name == name {
			move(&w.From, &w.To)
		}
	}
	for i := range h.Writes {
		if w := &h.Writes[i]; w.Name == name {
			move(&w.From, &w.At)
		}
	}
	h.Length += by
	h.Faults = nil // they were about times that have moved
}

// planted are single errors. Each returns false if there is no place for it in the history.
var planted = map[string]func(h *history.History, pick func(n int) int) bool{
	history.Overlap: func(h *history.History, pick func(int) int) bool {
		return plant(pick, pairsOf(h, anyOne), func(p pair) { p.a.Until = p.b.Returned + 1 })
	},
	history.TokenOrder: func(h *history.History, pick func(int) int) bool {
		return plant(pick, pairsOf(h, anyOne), func(p pair) { p.a.Token, p.b.Token = p.b.Token, p.a.Token })
	},
	history.MinHold: func(h *history.History, pick func(int) int) bool {
		return plant(pick, pairsOf(h, anyOne), func(p pair) { p.a.MinHold = p.b.Returned - p.a.Called + 2*ms })
	},
	history.LimitExceeded: func(h *history.History, pick func(int) int) bool {
		var all []pair
		for i := range h.Acquisitions {
			if a := &h.Acquisitions[i]; i > 0 && a.Limit > 0 && h.Acquisitions[i-1].Shared && h.Acquisitions[i-1].Returned < a.Returned && h.Acquisitions[i-1].Until > a.Returned {
				all = append(all, pair{nil, a})
			}
		}
		return plant(pick, all, func(p pair) { p.b.Limit = 1 })
	},
	history.LateLoss: func(h *history.History, pick func(int) int) bool {
		return plant(pick, pairsOf(h, func(a *history.Acquisition) bool { return a.Deadline != 0 }), func(p pair) {
			p.a.Deadline, p.a.Lost = p.b.Returned+1, p.b.Returned+1
		})
	},
	history.SlowDeath: func(h *history.History, pick func(int) int) bool {
		return plant(pick, pairsOf(h, func(a *history.Acquisition) bool { return a.Died != 0 }), func(p pair) {
			died := p.a.Died
			delay(h, p.a.Name, died, 2*ttl)
			call(h, p.b, died)
		})
	},
	"slow death for an attempt": func(h *history.History, pick func(int) int) bool {
		return plant(pick, pairsOf(h, func(a *history.Acquisition) bool { return a.Died != 0 }), func(p pair) {
			at, name := p.a.Died+ttl+120*ms, p.a.Name // after its minimum hold and the bound
			delay(h, name, p.a.Died, 4*ttl)
			call(h, p.b, p.b.Returned)
			h.Waits = append(h.Waits, history.Wait{ID: "attempt", Name: name, Worker: "w0", From: at, To: at + 1, Try: true, Held: true})
		})
	},
	history.ClosedName: func(h *history.History, pick func(int) int) bool {
		return plant(pick, pairsOf(h, func(a *history.Acquisition) bool { return a.Died == 0 && a.Lost == 0 && a.MinHold == 0 }), func(p pair) {
			ended := p.a.Ended
			delay(h, p.a.Name, ended, ttl)
			call(h, p.b, ended)
		})
	},
	history.LateWrite: func(h *history.History, pick func(int) int) bool {
		return plantWrite(h, pick, func(w history.Event) bool { return w.Refused }, func(w *history.Event) {
			w.Refused, w.Value = false, 1000
		})
	},
	"late write without numbers": func(h *history.History, pick func(int) int) bool {
		for i := range h.Writes {
			h.Writes[i].Value = 0
		}
		return plantWrite(h, pick, func(w history.Event) bool { return w.Refused }, func(w *history.Event) { w.Refused = false; w.From++; w.At++ })
	},
	history.LostWrite: func(h *history.History, pick func(int) int) bool {
		return plantWrite(h, pick, func(w history.Event) bool { return w.Value > 1 }, func(w *history.Event) { w.Value-- })
	},
	history.WrongRefusal: func(h *history.History, pick func(int) int) bool {
		return plantWrite(h, pick, func(w history.Event) bool { return !w.Refused }, func(w *history.Event) {
			w.Refused = true
		})
	},
}

func anyOne(*history.Acquisition) bool { return true }

// call makes an acquisition begin at a time.
func call(h *history.History, a *history.Acquisition, at time.Duration) {
	a.Called = at
	for i := range h.Waits {
		if h.Waits[i].ID == a.ID {
			h.Waits[i].From = at
		}
	}
}

func plant(pick func(int) int, all []pair, do func(pair)) bool {
	if len(all) == 0 {
		return false
	}
	do(all[pick(len(all))])
	return true
}

func plantWrite(h *history.History, pick func(int) int, which func(history.Event) bool, do func(*history.Event)) bool {
	var all []*history.Event
	for i := range h.Writes {
		if which(h.Writes[i]) {
			all = append(all, &h.Writes[i])
		}
	}
	if len(all) == 0 {
		return false
	}
	do(all[pick(len(all))])
	return true
}

// TestPlantedErrors: a single error in a good history is found, and named as what it is.
func TestPlantedErrors(t *testing.T) {
	for what, plant := range planted {
		t.Run(what, func(t *testing.T) {
			planted := 0
			for seed := range uint64(100) {
				h := good(seed)
				random := rand.New(rand.NewPCG(seed, 2))
				if !plant(h, random.IntN) {
					continue
				}
				planted++
				h.Judge(bounds)
				rule := map[string]string{"slow death for an attempt": history.SlowDeath, "late write without numbers": history.LateWrite}[what]
				if rule == "" {
					rule = what
				}
				if !slices.ContainsFunc(h.Violations, func(v history.Violation) bool { return v.Rule == rule }) {
					t.Fatalf("seed %d: not found among %v", seed, h.Violations)
				}
			}
			if planted < 30 {
				t.Errorf("only %d of 100 histories had a place for it", planted)
			}
		})
	}
}

// TestSearch: a limit counts from the grant, which may be before acquire returns, and the search
// reaches the end of a long history.
func TestSearch(t *testing.T) {
	h := &history.History{}
	for i := range 1200 {
		h.Acquisitions = append(h.Acquisitions, grant(int64(i+1), i, i, i+1))
	}
	if h.Judge(history.Rules{Search: time.Minute}); len(h.Violations)+len(h.Undecided) > 0 {
		t.Fatal(h.Violations, h.Undecided)
	}
	h.Acquisitions = append(h.Acquisitions, share(grant(2000, 2000, 2005, 2008), 1), share(grant(2001, 2000, 2001, 2003), 1))
	if h.Judge(history.Rules{}); len(h.Violations) > 0 {
		t.Fatal(h.Violations)
	}
	if h.Judge(history.Rules{Search: time.Minute}); len(h.Violations) != 1 || h.Violations[0].Rule != history.NoOrder {
		t.Error(h.Violations)
	}
	if h.Judge(history.Rules{Search: 1}); len(h.Violations) > 0 || len(h.Undecided) != 1 {
		t.Error("decided without time", h.Violations)
	}
}

func TestIgnoredMinHolds(t *testing.T) {
	first, second := grant(1, 0, 1, 2), grant(2, 0, 3, 4)
	first.MinHold = sec(5)
	h := &history.History{Acquisitions: []history.Acquisition{first, second}}
	if h.Judge(history.Rules{}); len(h.Violations) != 1 || h.Violations[0].Rule != history.MinHold {
		t.Error(h.Violations)
	}
	if h.Judge(history.Rules{IgnoreMinHolds: true}); len(h.Violations) > 0 {
		t.Error(h.Violations)
	}
}

// TestWritesOfOneHolder: a holder may write twice.
func TestWritesOfOneHolder(t *testing.T) {
	w := history.Event{Name: "n", Token: 1, From: 1, At: 2}
	again := w
	again.From, again.At = 3, 4
	h := &history.History{Writes: []history.Event{w, again}}
	if h.Judge(history.Rules{}); len(h.Violations) > 0 {
		t.Error(h.Violations)
	}
}
