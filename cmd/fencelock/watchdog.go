//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watchdogVariable marks a process as a watchdog.
const watchdogVariable = "FENCELOCK_WATCHDOG"

// watchdog is our end of the small process that kills the command when we cannot:
// after a kill -9 of ours, or frozen past the deadline. A nil watchdog does nothing.
type watchdog struct {
	pid   int
	pipe  *os.File
	group int       // that it was told
	due   time.Time // the last deadline that it was told

	killed bool
}

// watchdogName is what the process table shows: not our own name, or whoever kills
// all processes of that name leaves the command to itself.
const watchdogName = "lock-watchdog"

// startWatchdog starts ourselves again, in a session of its own, where no terminal
// and no signal to our group reaches it.
func startWatchdog() (*watchdog, error) {
	self, err := ownProgram()
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	pid, err := startProcess(self, []string{watchdogName}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   append(os.Environ(), watchdogVariable+"=1"),
		Files: []uintptr{theirs.Fd(), null.Fd(), null.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		ours.Close()
		return nil, err
	}
	return &watchdog{pid: pid, pipe: ours}, nil
}

// ownProgram returns a path to our own program. The kernel's link leads there even
// after a new version was put in its place.
func ownProgram() (string, error) {
	const link = "/proc/self/exe"
	if _, err := os.Stat(link); err == nil {
		return link, nil
	}
	if path, err := os.Executable(); err == nil {
		return path, nil
	}
	path, err := exec.LookPath(os.Args[0])
	if err != nil {
		return "", errors.New("fencelock does not find its own program; mount /proc, or start it by its whole path")
	}
	return filepath.Abs(path)
}

func (w *watchdog) id() int {
	if w == nil {
		return 0
	}
	return w.pid
}

// guard tells the watchdog which process group to kill.
func (w *watchdog) guard(group int) {
	if w != nil && w.group != group {
		w.tell("group %d", group)
		w.group = group
	}
}

// until tells the watchdog when the group must be gone, if that has changed. The
// clock is read before the time that is left: a process that freezes in between
// makes the deadline earlier, never later.
func (w *watchdog) until(deadline time.Time) {
	if w == nil || deadline.Sub(w.due).Abs() < time.Millisecond {
		return
	}
	now := bootTime()
	w.tell("until %d", now+time.Until(deadline))
	w.due = deadline
}

// tell sends a line. A watchdog that has not read so many of them that the pipe is
// full does not work, and is killed.
func (w *watchdog) tell(format string, args ...any) {
	_ = w.pipe.SetWriteDeadline(time.Now().Add(killReserve)) // pipes have deadlines
	if _, err := fmt.Fprintf(w.pipe, format+"\n", args...); errors.Is(err, os.ErrDeadlineExceeded) {
		w.kill()
	}
}

// dismiss says goodbye: the watchdog ends and kills nobody.
func (w *watchdog) dismiss() {
	if w != nil {
		w.tell("goodbye")
		w.pipe.Close()
	}
}

// kill ends a watchdog that does not end by itself, and reports whether it had to.
// It is our child and was not collected, so the number is still its own.
func (w *watchdog) kill() bool {
	if w == nil || w.pid <= 1 || w.killed {
		return false
	}
	w.killed = true
	return unix.Kill(w.pid, unix.SIGKILL) == nil
}
