//go:build unix

package supervise

import (
	"time"

	"golang.org/x/sys/unix"
)

// pollEnd closes ended when a process does not exist any more.
func pollEnd(pid int, ended chan<- struct{}) {
	defer close(ended)
	for unix.Kill(pid, 0) != unix.ESRCH {
		time.Sleep(100 * time.Millisecond)
	}
}

// keepFirstFiles is KeepFiles for the descriptors that a shell or a service manager may pass on.
func keepFirstFiles() {
	for fd := 3; fd < 1024; fd++ {
		unix.CloseOnExec(fd) // most are not open
	}
}
