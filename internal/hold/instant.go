package hold

import "time"

// Instant is one reading of three clocks, each counted from an origin of its
// own. They are read together because no single one can be trusted with a lease:
// the monotonic clock stops while the machine is suspended, the boot-time clock
// does not exist everywhere, and the wall clock may be stepped.
type Instant struct {
	Mono time.Duration // CLOCK_MONOTONIC
	Boot time.Duration // CLOCK_BOOTTIME: monotonic and suspended time
	Wall time.Duration // CLOCK_REALTIME
}

// Since returns the time from s to t by the clock that saw most of it pass. A
// clock stepped forward can end a hold too early, which is safe; none can make
// it last too long.
func (t Instant) Since(s Instant) time.Duration {
	return max(t.Mono-s.Mono, t.Boot-s.Boot, t.Wall-s.Wall)
}

// Jumped reports whether, between s and t, some clock ran ahead of the
// monotonic one by more than slack: a resume from suspend, or a step forward.
func (t Instant) Jumped(s Instant, slack time.Duration) bool {
	return t.Since(s)-(t.Mono-s.Mono) > slack
}
