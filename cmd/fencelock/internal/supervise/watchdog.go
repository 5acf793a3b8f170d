//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What a wrapper and its watchdog have agreed on. They may be of two versions, where a new
// program was put in the place of the old one while that ran, so none of it may change:
// neither these nor the lines "group N", "until N" and "goodbye" that one writes and the
// other reads, where N is a process group and nanoseconds on the clock of bootTime.
const (
	watchdogVariable = "FENCELOCK_WATCHDOG" // in the environment of a watchdog
	hasKilled        = 76                   // the exit code of a watchdog that killed the command
)

// KillReserve is what the kill at the deadline itself takes: a command is gone by then.
const KillReserve = 100 * time.Millisecond

// watchdog is our end of the small process that kills the command when we cannot:
// after a kill -9 of ours, or frozen past the deadline. A nil watchdog does nothing.
type watchdog struct {
	pid   int
	pipe  *os.File
	group int       // that it was told
	due   time.Time // the last deadline that it was told

	killed bool // by us; once is enough
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
		Env:   append(withoutWatchdog(os.Environ()), watchdogVariable+"=1"),
		Files: []uintptr{theirs.Fd(), null.Fd(), null.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		ours.Close()
		return nil, err
	}
	return &watchdog{pid: pid, pipe: ours}, nil
}

// withoutWatchdog is an environment that makes nobody a watchdog.
func withoutWatchdog(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, watchdogVariable+"=") })
}

// Ready finds out whether a watchdog can be started at all, before a wait that would be
// in vain. Its error is a *StartError.
func Ready() error {
	if _, err := ownProgram(); err != nil {
		return failed(err)
	}
	return nil
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

// id is the number of the process, or 0, which no process has.
func (w *watchdog) id() int {
	if w == nil {
		return 0
	}
	return w.pid
}

// inform tells the watchdog which process group to kill, and that its lock ends at a
// deadline, if either has changed. Without a group or a deadline there is nothing to tell.
// The clock is read before the time that is left: a process that freezes in between
// makes the deadline earlier, never later.
func (w *watchdog) inform(group int, deadline time.Time) {
	if w.group != group {
		w.tell("group %d", group)
		w.group = group
	}
	if deadline.IsZero() || deadline.Sub(w.due).Abs() < time.Millisecond {
		return
	}
	now := bootTime()
	w.tell("until %d", now+time.Until(deadline)-KillReserve)
	w.due = deadline
}

// tell sends a line. A watchdog that has not read so many of them that the pipe is
// full does not work, and is killed.
func (w *watchdog) tell(format string, args ...any) {
	_ = w.pipe.SetWriteDeadline(time.Now().Add(KillReserve)) // pipes have deadlines
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
