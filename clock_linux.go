package fencelock

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspended returns how long the machine has slept since it booted: the
// monotonic clock stands still meanwhile, the boot-time clock does not.
func suspended() time.Duration {
	var boot, mono unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil ||
		unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil {
		return 0 // a kernel without the clock: the wall clock stands in
	}
	asleep := time.Duration(boot.Nano() - mono.Nano())
	return asleep.Truncate(time.Millisecond) // what remains is the time between the two readings
}
