// Package ratetest compares an engine's implementation of rates in Lua or SQL with package gcra.
// Only tests use it.
package ratetest

import (
	"fmt"

	"github.com/fencelock/fencelock/internal/gcra"
	"pgregory.net/rapid"
)

// Rates are the rates of an engine, with a clock that the test controls: each call passes its time.
// All times are in microseconds.
type Rates interface {
	// Take is [gcra.State.Take] of a key.
	Take(key string, now, cost, most, each int64) (got, ahead int64, err error)

	// Return is [gcra.State.Return] of a key.
	Return(key string, now, cost int64, left gcra.State) error

	// Reset deletes a key.
	Reset(key string, now int64) error

	// Kept returns the stored state of a key, the zero State if there is none.
	Kept(key string) (gcra.State, error)
}

// taken is a take that may be given back.
type taken struct {
	cost int64
	left gcra.State
}

// firsts are the first readings of the clock: a correct one, and that of a machine whose clock has
// no battery. Neither is a round number.
var firsts = []int64{1_700_000_000_000_007, 86_400_000_007}

// Check fails the test unless the rates answer and store the same as package gcra, whatever is
// taken and returned, once or repeatedly, by a clock that jumps. It uses the keys "k1", "k2" and so
// on.
func Check(t rapid.TB, rates Rates) {
	t.Helper()
	sequence := 0
	rapid.Check(t, func(t *rapid.T) {
		sequence++
		p := &pair{T: t, rates: rates, key: fmt.Sprint("k", sequence), now: rapid.SampledFrom(firsts).Draw(t, "first")}
		p.unit = rapid.SampledFrom([]int64{1, 1000, 3_600_000_000, 7_000_000_000_000}).Draw(t, "unit")
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			p.now = max(firsts[1], p.now+rapid.Int64Range(-3, 5).Draw(t, "pause")*p.unit/2)
			switch step := rapid.IntRange(0, 9).Draw(t, "step"); {
			case step == 0:
				p.reset()
			case step < 4 && len(p.takes) > 0:
				p.giveBack()
			default:
				p.take()
			}
		}
		p.kept()
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

// take takes from both, with a burst of four: all or none, or fewer, or it only looks.
func (p *pair) take() {
	cost := rapid.Int64Range(0, 4).Draw(p.T, "cost") * p.unit
	each := cost
	if cost > 0 && rapid.Bool().Draw(p.T, "fewer will do") {
		each = p.unit
	}
	want, wantAhead := p.model.Take(p.now, cost, 4*p.unit, each)
	got, ahead, err := p.rates.Take(p.key, p.now, cost, 4*p.unit, each)
	if err != nil || got != want || ahead != wantAhead {
		p.Fatalf("taking %d of %d each at %d: %d, %d ahead, %v; want %d, %d", cost, each, p.now, got, ahead, err, want, wantAhead)
	}
	if got > 0 {
		p.takes = append(p.takes, taken{got, p.model})
	}
	p.kept()
}

// reset forgets the key of both.
func (p *pair) reset() {
	p.model = gcra.State{}
	if err := p.rates.Reset(p.key, p.now); err != nil {
		p.Fatalf("a reset: %v", err)
	}
	p.kept()
}

// kept fails the test unless the engine keeps what it should.
func (p *pair) kept() {
	got, err := p.rates.Kept(p.key)
	if err != nil || got != p.model && (got != gcra.State{} || p.model.Ahead > 0) {
		p.Fatalf("kept is %+v, %v; want %+v", got, err, p.model)
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
