package clock

import (
	"time"

	"github.com/fencelock/fencelock/internal/hold"
)

// SleepAt returns a function that tells how long a machine has been suspended,
// by a clock that read reads.
func SleepAt(read func() time.Duration) func(now hold.Instant) time.Duration {
	c := sleepClock{read: read}
	return c.at
}
