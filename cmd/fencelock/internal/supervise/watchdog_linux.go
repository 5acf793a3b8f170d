package supervise

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// nameProcess sets the name that killall and ps look at. It is that of the main
// thread, which must call it.
func nameProcess(name string) {
	text := append([]byte(name), 0)
	unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&text[0])), 0, 0, 0) //nolint:gosec // the kernel reads a string
}

// bootTime reads a clock that is the same in every process of this machine, that
// nobody sets, and that goes on while the machine sleeps.
func bootTime() time.Duration {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // cannot fail with this clock
	return time.Duration(now.Nano())
}
