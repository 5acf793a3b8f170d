//go:build unix && !linux

package supervise

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// adoptOrphans does nothing, since only Linux has subreapers. On other systems a tree is the
// process group of the command.
func adoptOrphans() {}

// dieWithParent does nothing. If the watchdog is killed, the wrapper kills the command.
func dieWithParent(*syscall.SysProcAttr) {}

// nameProcess does nothing.
func nameProcess(string) {}

// bootTime reads a clock that is the same in all processes and cannot be set. On macOS it continues
// while the machine sleeps.
func bootTime() time.Duration {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // cannot fail with this clock
	return time.Duration(now.Nano())
}

// dup2 duplicates from as to.
func dup2(from, to int) { _ = unix.Dup2(from, to) }

// next waits for a change of a child and reaps the child if it has ended. It returns 0 for an
// unknown child.
func (r *reaper) next(status *unix.WaitStatus) (int, error) {
	pid, err := unix.Wait4(-1, status, unix.WUNTRACED|unix.WCONTINUED, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.note(pid, *status), err
}

// roots is 1 while the group has members. An empty group stays empty.
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

// signalRest signals the group after the command itself has ended.
func (t *tree) signalRest(sig unix.Signal) {
	if !errors.Is(children.signalGroup(t.group, 0), unix.ESRCH) {
		return // signal signals the group
	}
	if t.roots() > 0 && errors.Is(unix.Kill(-t.group, sig), unix.EPERM) {
		t.denied = 1
	}
}

// NameKeeper does nothing. Keepers are in a session of their own, and so not in the tree.
func NameKeeper() {}

// endKeepers does nothing.
func (t *tree) endKeepers() (n int, asked bool) { return 0, false }

// kill kills the group. It returns when the group is empty or cannot be killed, or after the time
// limit.
func (t *tree) kill(limit time.Duration) {
	for end := bootTime() + limit; t.roots() > 0 && bootTime() < end; time.Sleep(5 * time.Millisecond) {
		t.denied = 0
		if errors.Is(unix.Kill(-t.group, unix.SIGKILL), unix.EPERM) {
			t.denied = 1
			return
		}
	}
}

// finished reports whether a process has ended and was reaped.
func finished(pid int) bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

// ownChildren returns nothing, since children are not listed on these systems.
func ownChildren() []int { return nil }

// parentOf returns 0, since parents are not looked up on these systems.
func parentOf(int) int { return 0 }
