package hold

import "time"

// Instant is one reading of three clocks, each with its own origin. They are read together because
// none of them is sufficient for a lease: the monotonic clock stops while the machine is suspended,
// the boot-time clock does not exist on all systems, and the wall clock can be set.
type Instant struct {
	Mono time.Duration // CLOCK_MONOTONIC
	Boot time.Duration // CLOCK_BOOTTIME: monotonic time plus suspended time
	Wall time.Duration // CLOCK_REALTIME
}

// Since returns the time from s to t by the clock that advanced most. A clock that is set forward
// can end a hold too early, which is safe. No clock can extend it.
func (t Instant) Since(s Instant) time.Duration {
	return max(t.Mono-s.Mono, t.Boot-s.Boot, t.Wall-s.Wall)
}

// Jumped reports whether a clock advanced by more than slack beyond the monotonic clock between s
// and t: after a suspend, or because it was set forward.
func (t Instant) Jumped(s Instant, slack time.Duration) bool {
	return t.Since(s)-(t.Mono-s.Mono) > slack
}
