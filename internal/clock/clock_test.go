package clock_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/clock"
	"github.com/fencelock/fencelock/internal/hold"
)

func TestSleepIsReadAgainWhenItMayHaveMoved(t *testing.T) {
	const ms = time.Millisecond
	reads, slept := 0, time.Duration(0)
	at := clock.SleepAt(func() time.Duration { reads++; return slept })
	for _, c := range []struct {
		what       string
		mono, wall time.Duration
		sleeps     time.Duration // before this reading
		reads      int
	}{
		{"the first reading", 0, 1000 * ms, 0, 1},
		{"soon after", 50 * ms, 1050 * ms, 0, 1},
		{"just before it is too old", 99 * ms, 1099 * ms, 0, 1},
		{"too old", 100 * ms, 1100 * ms, 0, 2},
		{"after a suspension", 110 * ms, 6110 * ms, 5000 * ms, 3},
		{"after the next one, as short as shows", 120 * ms, 6121 * ms, ms, 4},
		{"after the wall clock was stepped back", 130 * ms, 130 * ms, 0, 5},
		{"at an earlier time", 120 * ms, 120 * ms, 0, 6},
	} {
		slept += c.sleeps
		if got := at(hold.Instant{Mono: c.mono, Wall: c.wall}); got != slept || reads != c.reads {
			t.Errorf("%s: %v after %d readings, want %v after %d", c.what, got, reads, slept, c.reads)
		}
	}
}
