// Package ratetest compares what an engine makes of rates in a language of its own, Lua or
// SQL, with package gcra. Only tests use it.
package ratetest

import (
	"fmt"

	"github.com/fencelock/fencelock/internal/gcra"
	"pgregory.net/rapid"
)

// Rates are those of an engine, by a clock that the test sets: each call says what it
// shows. All times are in microseconds.
type Rates interface {
	// Take is [gcra.State.Take] of a key.
	Take(key string, now, cost, most int64) (ahead int64, ok bool, err error)

	// Return is [gcra.State.Return] of a key.
	Return(key string, now, cost int64, left gcra.State) error

	// Kept is what the engine knows of a key, zero if it has forgotten it.
	Kept(key string) (gcra.State, error)
}

// taken is a take that may be given back.
type taken struct {
	cost int64
	left gcra.State
}

// firsts are what the clock may show at first: one that is right, and that of a machine
// which has no battery for it. Not all of their digits are zeros.
var firsts = []int64{1_700_000_000_000_007, 86_400_000_007}

// Check fails the test unless the rates answer and keep what package gcra does, whatever is
// taken and given back, once and again, by a clock that steps. The keys it uses are its
// own: "k1", "k2" and so on.
func Check(t rapid.TB, rates Rates) {
	t.Helper()
	sequence := 0
	rapid.Check(t, func(t *rapid.T) {
		sequence++
		p := &pair{T: t, rates: rates, key: fmt.Sprint("k", sequence), now: rapid.SampledFrom(firsts).Draw(t, "first")}
		p.unit = rapid.SampledFrom([]int64{1, 1000, 3_600_000_000, 7_000_000_000_000}).Draw(t, "unit")
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			p.now = max(firsts[1], p.now+rapid.Int64Range(-3, 5).Draw(t, "pause")*p.unit/2)
			if len(p.takes) > 0 && rapid.IntRange(0, 2).Draw(t, "give back") == 0 {
				p.giveBack()
			} else {
				p.take()
			}
		}
		got, err := p.rates.Kept(p.key)
		if err != nil || got != p.model && (got != gcra.State{} || p.model.Ahead > 0) {
			t.Fatalf("kept is %+v, %v; want %+v", got, err, p.model)
		}
	})
}

// pair is one key of the engine, and what it should be.
type pair struct {
	*rapid.T
	rates     Rates
	key       string
	model     gcra.State
	now, unit int64
	takes     []taken // that were granted
}

// take takes from both, with a burst of four.
func (p *pair) take() {
	cost := rapid.Int64Range(1, 4).Draw(p.T, "cost") * p.unit
	wantAhead, want := p.model.Take(p.now, cost, 4*p.unit)
	ahead, ok, err := p.rates.Take(p.key, p.now, cost, 4*p.unit)
	if err != nil || ok != want || ahead != wantAhead {
		p.Fatalf("taking %d at %d: %d ahead, %v, %v; want %d, %v", cost, p.now, ahead, ok, err, wantAhead, want)
	}
	if ok {
		p.takes = append(p.takes, taken{cost, p.model})
	}
}

// giveBack gives a take back to both; it may have come back before.
func (p *pair) giveBack() {
	late := rapid.IntRange(1, min(3, len(p.takes))).Draw(p.T, "which of the last")
	back := p.takes[len(p.takes)-late]
	p.model.Return(back.cost, back.left)
	if err := p.rates.Return(p.key, p.now, back.cost, back.left); err != nil {
		p.Fatalf("giving %+v back: %v", back, err)
	}
}
