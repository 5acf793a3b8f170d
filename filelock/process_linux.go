package filelock

import (
	"os"

	"golang.org/x/sys/unix"
)

// watchProcess rings bell when a process of this host ends, and stops when the file that
// it returns is closed. A pidfd means one process for good, while a pid may be given to
// another one. The file is nil where the system does not tell, and for a process that has
// ended: a child of it may keep its lock, and nobody rings when that ends.
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
