package filelock

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// watchProcess signals wake when a process of this host ends, until the returned file is closed. It
// uses a pidfd, which always refers to the same process, while a pid may be reused. It returns nil
// if pidfds are not available or the process has ended already: a child may still keep its lock,
// and the end of that is not signalled.
func watchProcess(pid int, wake chan<- struct{}) *os.File {
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
			signal(wake)
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

// stopped reports whether a process of this host is stopped (by SIGSTOP or a debugger). In
// /proc/pid/stat the state follows the command, which is in parentheses and may contain
// parentheses.
func stopped(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	i := bytes.LastIndexByte(b, ')')
	return i >= 0 && len(b) > i+2 && (b[i+2] == 'T' || b[i+2] == 't')
}

// flockOwners returns the processes that have a descriptor whose open file holds a flock on f.
// known is false if the kernel does not report it. Other descriptors of the same file do not count.
func flockOwners(f *os.File) (pids []int, known bool) {
	file, err := f.Stat()
	if err != nil {
		return nil, false
	}
	inode := fmt.Sprintf(":%d ", file.Sys().(*syscall.Stat_t).Ino)
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range procs {
		if ownsFlock(proc, file, inode) {
			if pid, err := strconv.Atoi(filepath.Base(proc)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, true
}

// ownsFlock looks for a line such as "lock: 1: FLOCK  ADVISORY  WRITE 9 fe:00:77 0 EOF". The device
// number in it (fe:00) may differ from that of stat, as on btrfs, so the descriptor is compared
// too. Only descriptors with such a line are opened, because opening others may take long.
func ownsFlock(proc string, file os.FileInfo, inode string) bool {
	infos, _ := os.ReadDir(proc + "/fdinfo")
	for _, fd := range infos {
		b, err := os.ReadFile(proc + "/fdinfo/" + fd.Name())
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(line, "lock:") && strings.Contains(line, "FLOCK") && strings.Contains(line, inode) {
				if info, err := os.Stat(proc + "/fd/" + fd.Name()); err == nil && os.SameFile(info, file) {
					return true
				}
			}
		}
	}
	return false
}

// commandOf returns the name of a process's command, "" if it is unknown.
func commandOf(pid int) string {
	comm, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	return strings.TrimSpace(string(comm))
}
