//go:build unix && !linux

package supervise

import (
	"time"

	"golang.org/x/sys/unix"
)

// nameProcess does nothing: the name is that of the program here.
func nameProcess(string) {}

// bootTime reads a clock that is the same in every process of this machine and
// that nobody sets. On macOS it goes on while the machine sleeps.
func bootTime() time.Duration {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // cannot fail with this clock
	return time.Duration(now.Nano())
}
