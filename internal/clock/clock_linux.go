package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspended returns how long the machine has been suspended since it booted: the difference between
// the boot-time clock and the monotonic clock.
func suspended() time.Duration {
	return asleep(func(clock int32) (time.Duration, error) {
		var t unix.Timespec
		err := unix.ClockGettime(clock, &t)
		return time.Duration(t.Nano()), err
	})
}

// asleep compares the two clocks. The thread may be preempted between the readings, which would
// look like suspended time. Therefore it reads the boot-time clock between two readings of the
// monotonic clock, and uses the closest pair of up to ten.
func asleep(read func(clock int32) (time.Duration, error)) (slept time.Duration) {
	const near = 100 * time.Microsecond
	closest := time.Duration(-1)
	for range 10 {
		before, err1 := read(unix.CLOCK_MONOTONIC)
		boot, err2 := read(unix.CLOCK_BOOTTIME)
		after, err3 := read(unix.CLOCK_MONOTONIC)
		if err1 != nil || err2 != nil || err3 != nil {
			return 0 // the kernel lacks the clock: the wall clock is used instead
		}
		if took := after - before; closest < 0 || took < closest {
			closest, slept = took, boot-before
		}
		if closest < near {
			break
		}
	}
	return slept.Truncate(time.Millisecond) // the rest is the time between the readings
}
