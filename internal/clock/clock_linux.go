package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspended returns how long the machine has slept since it booted: the
// monotonic clock stands still meanwhile, the boot-time clock does not.
func suspended() time.Duration {
	return asleep(func(clock int32) (time.Duration, error) {
		var t unix.Timespec
		err := unix.ClockGettime(clock, &t)
		return time.Duration(t.Nano()), err
	})
}

// asleep compares the two clocks. This thread may have to wait between the readings, which
// would look like a time that the machine slept for, or one that it did not: so the boot-time
// clock is read between two readings of the other that are next to one another, as a rule.
func asleep(read func(clock int32) (time.Duration, error)) (slept time.Duration) {
	const near = 100 * time.Microsecond
	closest := time.Duration(-1)
	for range 10 {
		before, err1 := read(unix.CLOCK_MONOTONIC)
		boot, err2 := read(unix.CLOCK_BOOTTIME)
		after, err3 := read(unix.CLOCK_MONOTONIC)
		if err1 != nil || err2 != nil || err3 != nil {
			return 0 // a kernel without the clock: the wall clock stands in
		}
		if took := after - before; closest < 0 || took < closest {
			closest, slept = took, boot-before
		}
		if closest < near {
			break
		}
	}
	return slept.Truncate(time.Millisecond) // what remains is the time between the readings
}
