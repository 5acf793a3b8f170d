package supervise

import (
	"math"

	"golang.org/x/sys/unix"
)

// Ended returns a channel that is closed when a process has ended: at once for one that has, even
// if its parent has not collected it. The process need not be a child of this one.
func Ended(pid int) <-chan struct{} {
	ended := make(chan struct{})
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil { // it has ended, or the kernel is older than 5.3
		go pollEnd(pid, ended) // ends with the process, or with this one
		return ended
	}
	if hasEnded(fd, 0) {
		unix.Close(fd)
		close(ended)
		return ended
	}
	go func() { // ends with the process, or with this one
		defer close(ended)
		defer unix.Close(fd)
		hasEnded(fd, -1)
	}()
	return ended
}

// hasEnded waits up to wait milliseconds, or without a limit if wait is negative, until the process
// of a pidfd has ended. It reports whether it has.
func hasEnded(fd, wait int) bool {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, wait)
		if err != unix.EINTR {
			return n > 0 || err != nil
		}
	}
}

// KeepFiles makes files that this process inherited end with it: a program that it starts does not
// get them.
func KeepFiles() {
	if unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) != nil { // Linux before 5.11
		keepFirstFiles()
	}
}
