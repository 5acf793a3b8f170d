package main

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/lab/evidence"
)

// A margin is counted from the last time at which the holder's library reported the lock as held.
func TestCompare(t *testing.T) {
	t.Parallel()
	const fault = 10 * time.Second
	for what, c := range map[string]struct {
		taken   event
		took    bool
		lost    event
		signals bool
		overlap int64
		seen    string
	}{
		"signalled before the takeover": {
			event{At: 15 * time.Second}, true, event{At: 14 * time.Second, Last: 13900 * time.Millisecond}, true,
			-1100, "last held 1.1 s before the takeover",
		},
		"signalled after it": {
			event{At: 15 * time.Second}, true, event{At: 16 * time.Second, Last: 15900 * time.Millisecond}, true,
			900, "both hold for 900 ms",
		},
		"no successor": {event{}, false, event{At: 14 * time.Second}, true, 0, "nobody takes over"},
		"neither":      {event{}, false, event{}, false, 0, "the holder keeps the lock"},
	} {
		got := compare(evidence.Comparison{}, fault, fault, c.taken, c.took, c.lost, c.signals)
		if got.Overlap != c.overlap || got.Seen != c.seen {
			t.Errorf("%s: overlap %d, %q; want %d, %q", what, got.Overlap, got.Seen, c.overlap, c.seen)
		}
	}
}

// Fatal ends the scenario, and what it has started.
func TestBed(t *testing.T) {
	t.Parallel()
	ended := 0
	err := inBed(func(b *bed) {
		b.Cleanup(func() { ended++ })
		b.Fatalf("no %s", "server")
	})
	if err == nil || err.Error() != "no server" || ended != 1 {
		t.Errorf("%v, %d clean-ups", err, ended)
	}
}
