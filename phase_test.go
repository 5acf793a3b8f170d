package fencelock_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/hold"
	"github.com/google/go-cmp/cmp"
)

// TestPhases: whatever happens to a hold, its phase changes along the arrows of the type phase only,
// and each arrow is taken. (giveUp takes that from expired to returned.)
func TestPhases(t *testing.T) {
	taken := map[string]bool{}
	for range 20_000 {
		h := hold.New(hold.Terms{TTL: 100, Grace: 20, Leased: rand.N(4) > 0}, hold.Instant{}, 100)
		h.Limit(time.Duration(rand.N(3)*40), hold.Instant{})
		p, ending := fencelock.PhaseHeld, fencelock.PhaseReleased
		if rand.N(2) == 0 {
			ending = fencelock.PhaseDetached
		}
		for now := time.Duration(0); now < 300; now += time.Duration(rand.N(30)) + 1 {
			at := hold.Instant{Mono: now, Boot: now, Wall: now}
			kind := []hold.Kind{hold.Tick, hold.Tick, hold.Look, hold.Renewed, hold.Failed, hold.Gone, hold.Released}[rand.N(7)]
			h.Step(hold.Event{Kind: kind, Sent: at, Cause: errors.ErrUnsupported}, at)
			next := p.Next(&h, kind, ending)
			if next != p {
				taken[p.String()+" "+next.String()] = true
			}
			p = next
		}
	}
	want := []string{
		"held detached", "held expired", "held lost", "held released", "held stopping",
		"stopping detached", "stopping expired", "stopping released",
	}
	if d := cmp.Diff(want, slices.Sorted(maps.Keys(taken))); d != "" {
		t.Errorf("arrows (-want +taken):\n%s", d)
	}
}
