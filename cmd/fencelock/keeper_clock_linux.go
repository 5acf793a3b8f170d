package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime reads a clock that is the same in every process of this machine, that
// nobody sets, and that goes on while the machine sleeps.
func bootTime() time.Duration {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // cannot fail with this clock
	return time.Duration(now.Nano())
}
