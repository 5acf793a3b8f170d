//go:build unix && !linux

package supervise

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// adoptOrphans does nothing: only Linux hands orphans to anyone but init. Elsewhere a tree is
// the process group of the command, and what leaves the group is not seen.
func adoptOrphans() {}

// dieWithParent does nothing: if the watchdog is killed, the wrapper kills the command.
func dieWithParent(*syscall.SysProcAttr) {}

// nameProcess does nothing: the name is that of the program here.
func nameProcess(string) {}

// bootTime reads a clock that is the same in every process of this machine and
// that nobody sets. On macOS it goes on while the machine sleeps.
func bootTime() time.Duration {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // cannot fail with this clock
	return time.Duration(now.Nano())
}

// dup2 makes to another number of the open file from.
func dup2(from, to int) { _ = unix.Dup2(from, to) }

// next waits for a change of a child, and collects it if it has ended. It returns 0 for a
// child that is not known.
func (r *reaper) next(status *unix.WaitStatus) (int, error) {
	pid, err := unix.Wait4(-1, status, unix.WUNTRACED|unix.WCONTINUED, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.note(pid, *status), err
}

// roots is 1 while the group has members. Once it has none it never gets one again.
func (t *tree) roots() int {
	if t.group <= 1 {
		return 0
	}
	err := unix.Kill(-t.group, 0)
	if errors.Is(err, unix.ESRCH) {
		t.group = 0
		return 0
	}
	return 1
}

// signalRest signals the group when the command itself has ended.
func (t *tree) signalRest(sig unix.Signal) {
	if !errors.Is(children.signalGroup(t.group, 0), unix.ESRCH) {
		return // the group is signalled as such
	}
	if t.roots() > 0 && errors.Is(unix.Kill(-t.group, sig), unix.EPERM) {
		t.denied = 1
	}
}

// kill kills the group, until it is empty or the time is over.
func (t *tree) kill(limit time.Duration) {
	for end := bootTime() + limit; t.roots() > 0 && bootTime() < end; time.Sleep(5 * time.Millisecond) {
		t.denied = 0
		if errors.Is(unix.Kill(-t.group, unix.SIGKILL), unix.EPERM) {
			t.denied = 1
			return
		}
	}
}

// ownChildren returns nothing: they are not known here.
func ownChildren() []int { return nil }

// parentOf returns 0: it is not known here.
func parentOf(int) int { return 0 }
