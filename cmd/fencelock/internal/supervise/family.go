//go:build unix

package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// family is the processes that a command started and that still run: its group, and
// those who left the group. They must end before the lock is given to others.
//
// Not every child of ours is one of them. A shell that replaced itself with us
// leaves us its background jobs, and the first process of a container is given every
// orphan in it.
type family struct {
	command   int          // also the process group
	ended     bool         // the command itself has ended, and was collected; what it left behind may not
	empty     bool         // and nobody is left in its group, whose number may be that of another one by now
	strangers map[int]bool // children we had before; they are not collected unseen
	watchdogs map[int]bool
	crowded   bool   // orphans may be those of strangers, so each must show its mark
	mark      []byte // a variable in the environment of the command
}

// newFamily looks at the children we have before a command starts. The command will
// have mark in its environment.
func newFamily(mark string) *family {
	f := &family{
		strangers: make(map[int]bool), watchdogs: make(map[int]bool),
		mark: append([]byte(mark), 0),
	}
	for _, pid := range childrenOf(os.Getpid()) {
		f.strangers[pid] = true
	}
	f.crowded = len(f.strangers) > 0 || os.Getpid() == 1
	return f
}

// left counts the members that are our children, and 1 if there are others.
func (f *family) left() int {
	n := len(f.roots())
	if err := f.signal(0); n == 0 && (err == nil || errors.Is(err, unix.EPERM)) {
		n = 1 // those who are not ours to wait for, or not ours to signal
	}
	return n
}

// signal sends a signal to the group, or 0 to see whether there is one. A group without members
// never gets one again, once its first one was collected.
func (f *family) signal(sig unix.Signal) error {
	if f.empty {
		return unix.ESRCH
	}
	err := unix.Kill(-f.command, sig)
	f.empty = f.ended && errors.Is(err, unix.ESRCH)
	return err
}

// roots returns the members that are our children: the command and the orphans.
func (f *family) roots() []int {
	children.mu.Lock()
	defer children.mu.Unlock()
	var roots []int
	for _, pid := range childrenOf(os.Getpid()) {
		if pid == f.command || !f.watchdogs[pid] && !f.strangers[pid] && f.marked(pid) {
			roots = append(roots, pid)
		}
	}
	return roots
}

// marked reports whether an orphan descends from the command, as far as can be seen.
func (f *family) marked(pid int) bool {
	if !f.crowded {
		return true
	}
	if group, err := unix.Getpgid(pid); err == nil && group == f.command {
		return true
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return !os.IsNotExist(err) // another user's: better one too many
	}
	return bytes.HasPrefix(environ, f.mark) || bytes.Contains(environ, append([]byte{0}, f.mark...))
}

// send sends a signal to the group, and with all also to those who left it. Those are
// known only where orphans are adopted.
func (f *family) send(sig unix.Signal, all bool) {
	_ = f.signal(sig) // fails once the group is empty
	if !all {
		return
	}
	for below := f.roots(); len(below) > 0; below = below[1:] {
		pid := below[0]
		below = append(below, childrenOf(pid)...)
		if group, err := unix.Getpgid(pid); err == nil && group != f.command {
			unix.Kill(pid, sig)
		}
	}
}
