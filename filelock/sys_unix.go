//go:build linux || darwin

package filelock

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The operations of flock.
const (
	lockShared    = unix.LOCK_SH
	lockExclusive = unix.LOCK_EX
	unlock        = unix.LOCK_UN
)

// errBusy is the error of flock if another open file has a conflicting lock.
var errBusy = unix.EWOULDBLOCK

// supported returns nil: on this system a flock ends with its process.
func supported() error { return nil }

// flock locks or unlocks f without waiting. The error is errBusy if there is a conflict.
func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err != unix.EINTR {
			return err
		}
	}
}

// stamp sets the modification time of f to now.
func stamp(f *os.File) {
	now := unix.NsecToTimeval(time.Now().UnixNano())
	_ = unix.Futimes(int(f.Fd()), []unix.Timeval{now, now}) // if it fails, the waiter may be skipped
}

// unlinked reports whether the open file f has been removed.
func unlinked(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink == 0
}

// duplicate returns another descriptor of the same open file.
func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// kill sends SIGKILL to a process. It is no error if the process has ended.
func kill(pid int) error {
	err := unix.Kill(pid, unix.SIGKILL)
	if err == unix.ESRCH {
		return nil
	}
	return err
}

// isFull reports whether the disk or the user's quota is full.
func isFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG)
}

func isReadOnly(err error) bool { return errors.Is(err, unix.EROFS) }

func isNotDir(err error) bool { return errors.Is(err, unix.ENOTDIR) }

// ownerOf returns the owner and the group of a file.
func ownerOf(info os.FileInfo) (uid, gid int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(st.Uid), int(st.Gid), true
}
