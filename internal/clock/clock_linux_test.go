package clock_test

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/internal/clock"
)

// A thread that had to wait between two readings has not seen the machine asleep, and one
// that slept has not slept for less.
func TestAWaitBetweenTwoClocksIsNoSleep(t *testing.T) {
	const us, ms = time.Microsecond, time.Millisecond
	for what, c := range map[string]struct {
		slept time.Duration
		waits []time.Duration // before each reading; a microsecond before those after them
	}{
		"no wait":                      {0, nil},
		"before the boot-time clock":   {0, []time.Duration{0, 50 * ms}},
		"after the boot-time clock":    {0, []time.Duration{0, 0, 50 * ms}},
		"again and again":              {0, []time.Duration{0, 50 * ms, 0, 0, 0, 50 * ms, 0, 30 * ms}},
		"after a suspension":           {time.Hour, nil},
		"after a suspension, and wait": {time.Hour, []time.Duration{0, 0, 50 * ms, 0, 50 * ms}},
		"always a little":              {time.Hour, []time.Duration{200 * us, 200 * us, 200 * us, 200 * us}},
	} {
		now := 100 * time.Hour
		got := clock.Asleep(func(id int32) (time.Duration, error) {
			wait := us
			if len(c.waits) > 0 {
				wait, c.waits = c.waits[0], c.waits[1:]
			}
			if now += wait; id == unix.CLOCK_BOOTTIME {
				return now + c.slept, nil
			}
			return now, nil
		})
		if got != c.slept {
			t.Errorf("%s: %v, want %v", what, got, c.slept)
		}
	}
	if got := clock.Asleep(func(int32) (time.Duration, error) { return time.Hour, errors.New("no such clock") }); got != 0 {
		t.Errorf("a kernel without the clock: %v", got)
	}
}
