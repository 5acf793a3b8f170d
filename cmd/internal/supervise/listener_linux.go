package supervise

import (
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// prepare starts a listener that join puts into the group of the command. It is started before the
// command, so that it is there in time.
//
// The listener is a fork of the watchdog without a Go runtime, since a Go program cannot block INT and
// QUIT, and only a process that blocks a signal can read who has sent it.
func (s *watchdog) prepare() {
	if s.typed != nil || s.ended {
		return
	}
	var wanted unix.Sigset_t
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGTERM} {
		wanted.Val[0] |= 1 << (sig - 1)
	}
	signals, err := unix.Signalfd(-1, &wanted, unix.SFD_CLOEXEC)
	if err != nil {
		return
	}
	defer unix.Close(signals)
	r, w, err := os.Pipe()
	if err != nil {
		return
	}
	defer w.Close()
	own, out := os.Getpid(), w.Fd()
	WithoutSignals(func() { // the main thread forks
		s.listener, _, err = children.start(func() (int, error) { return forkListener(own, uintptr(signals), out) })
	})
	if err != nil {
		r.Close()
		return
	}
	s.typed, s.foreign = signalsOf(r, own), map[int]bool{s.listener: true}
}

// join puts the listener into the group of the command. If a signal has ended the command before, or
// the command has gone to another session, there is no listener.
func (s *watchdog) join() {
	if s.typed == nil || s.listens {
		return
	}
	if unix.Setpgid(s.listener, s.group) != nil || ends(s.group) {
		_ = children.signal(s.listener, unix.SIGKILL)
		return
	}
	s.listens = true
}

// WithoutSignals calls do while this thread blocks all signals, so that a process that do forks runs no
// handler of the Go runtime. The goroutine must be locked to its thread.
func WithoutSignals(do func()) {
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before)
	do()
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
}

// ends reports whether a process has ended, or is about to end because of a signal.
func ends(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return true
	}
	var pending uint64
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); name {
		case "State":
			if strings.HasPrefix(value, "Z") || strings.HasPrefix(value, "X") {
				return true
			}
		case "SigPnd", "ShdPnd":
			n, _ := strconv.ParseUint(value, 16, 64) // a field of the kernel
			pending |= n
		}
	}
	return pending&(1<<(unix.SIGINT-1)|1<<(unix.SIGQUIT-1)|1<<(unix.SIGKILL-1)) != 0
}

// forkListener forks this process, whose number is parent, and returns the number of the child. The
// child writes each signal that it reads to out, and ends when this process sends TERM, or ends. It
// has one thread and makes only system calls, since locks of the Go runtime may never be free there.
//
//go:norace
//go:nosplit
func forkListener(parent int, signals, out uintptr) (int, error) {
	var info unix.SignalfdSiginfo
	name := [16]byte{'l', 'o', 'c', 'k', '-', 't', 'e', 'r', 'm', 'i', 'n', 'a', 'l'}
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	if pid != 0 {
		return int(pid), nil
	}
	unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0)
	if above, _, _ := unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0); int(above) != parent {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name)), 0) //nolint:gosec // the kernel reads a string
	unix.RawSyscall(unix.SYS_DUP3, signals, 0, 0)
	unix.RawSyscall(unix.SYS_DUP3, out, 1, 0)
	unix.RawSyscall(unix.SYS_DUP3, signals, 2, 0)
	if _, _, errno = unix.RawSyscall(unix.SYS_CLOSE_RANGE, 3, math.MaxInt32, 0); errno != 0 { // Linux before 5.9
		for fd := uintptr(3); fd < 1024; fd++ {
			unix.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
		}
	}
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, 0, uintptr(unsafe.Pointer(&info)), unsafe.Sizeof(info)) //nolint:gosec // the kernel fills a struct
		if errno == unix.EINTR {
			continue
		}
		if n != unsafe.Sizeof(info) || info.Signo == uint32(unix.SIGTERM) && int(info.Pid) == parent {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		unix.RawSyscall(unix.SYS_WRITE, 1, uintptr(unsafe.Pointer(&info)), n) //nolint:gosec // the kernel reads a struct
	}
}

// signalsOf returns a channel with the signals that a listener writes to r and that the terminal has
// sent. own is the number of this process. The channel is closed when the listener has ended.
func signalsOf(r *os.File, own int) <-chan unix.Signal {
	signals := make(chan unix.Signal)
	go func() { // ends with the listener, or with this process
		defer close(signals)
		defer r.Close()
		var info unix.SignalfdSiginfo
		buf := (*[unsafe.Sizeof(info)]byte)(unsafe.Pointer(&info))[:] //nolint:gosec // the kernel has filled a struct
		for {
			if _, err := io.ReadFull(r, buf); err != nil {
				return
			}
			if sig := unix.Signal(info.Signo); sig != unix.SIGTERM && fromTerminal(info, own) {
				signals <- sig
			}
		}
	}()
	return signals
}

// fromTerminal reports whether a signal comes from the terminal: the kernel has sent it, or a wrapper among
// the processes of the command has passed it on. A signal of another process to the group of the
// command, as from timeout(1), does not concern the group of our wrapper.
func fromTerminal(info unix.SignalfdSiginfo, own int) bool {
	const kernel = 0x80 // SI_KERNEL
	return info.Code == kernel || int(info.Pid) != own && isOurs(int(info.Pid))
}

// isOurs reports whether a process runs the same file as this one.
func isOurs(pid int) bool {
	theirs, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return false
	}
	ours, err := os.Stat("/proc/self/exe")
	return err == nil && os.SameFile(theirs, ours)
}
