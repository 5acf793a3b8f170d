package supervise

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Ended returns a channel that is closed when a process has ended. The process need not be a child
// of this one.
func Ended(pid int) <-chan struct{} {
	ended := make(chan struct{})
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil { // it has ended, or the kernel is older than 5.3
		go pollEnd(pid, ended) // ends with the process, or with this one
		return ended
	}
	go func() { // ends with the process, or with this one
		defer close(ended)
		defer unix.Close(fd)
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if n > 0 || err != nil && err != unix.EINTR {
				return
			}
		}
	}()
	return ended
}

// KeepFiles makes files that this process inherited end with it: a program that it starts does not
// get them.
func KeepFiles() {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		keepFirstFiles()
		return
	}
	for _, entry := range all {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}
