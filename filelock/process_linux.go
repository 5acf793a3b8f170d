package filelock

import (
	"os"

	"golang.org/x/sys/unix"
)

// watchProcess signals bell when a process of this host ends, until the returned file is closed. It
// uses a pidfd, which always refers to the same process, while a pid may be reused. It returns nil
// if pidfds are not available or the process has ended already: a child may still keep its lock,
// and the end of that is not signalled.
func watchProcess(pid int, bell chan<- struct{}) *os.File {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil
	}
	if ended(uintptr(fd)) {
		unix.Close(fd)
		return nil
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	conn, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil
	}
	go func() { // ends with the process, or when the file is closed
		if conn.Read(ended) == nil {
			ringOwn(bell)
		}
	}()
	return f
}

// ended reports whether the process of a pidfd has ended.
func ended(fd uintptr) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0
}
