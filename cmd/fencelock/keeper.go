//go:build unix

package main

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// keeperVariable marks a process as a keeper.
const keeperVariable = "FENCELOCK_KEEPER"

// keeper is our end of the small process that kills the command when we cannot:
// after a kill -9 of ours, or frozen past the deadline. A nil keeper does nothing.
type keeper struct {
	pid  int
	pipe *os.File
	due  time.Time // the last deadline it was told

	killed bool
}

// startKeeper starts ourselves again, in a session of its own, where no terminal
// and no signal to our group reaches it.
func startKeeper() (*keeper, error) {
	self, err := os.Executable()
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
	process, err := os.StartProcess(self, os.Args[:1], &os.ProcAttr{
		Dir:   "/",
		Env:   append(os.Environ(), keeperVariable+"=1"),
		Files: []*os.File{theirs, null, null},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		ours.Close()
		return nil, err
	}
	return &keeper{pid: process.Pid, pipe: ours}, nil
}

func (k *keeper) id() int {
	if k == nil {
		return 0
	}
	return k.pid
}

// guard tells the keeper which process group to kill.
func (k *keeper) guard(group int) {
	if k != nil {
		fmt.Fprintf(k.pipe, "group %d\n", group)
	}
}

// until tells the keeper when the group must be gone, if that has changed. The
// clock is read before the time that is left: a process that freezes in between
// makes the deadline earlier, never later.
func (k *keeper) until(deadline time.Time) {
	if k == nil || deadline.Sub(k.due).Abs() < time.Millisecond {
		return
	}
	now := bootTime()
	fmt.Fprintf(k.pipe, "until %d\n", now+time.Until(deadline))
	k.due = deadline
}

// dismiss says goodbye: the keeper ends and kills nobody.
func (k *keeper) dismiss() {
	if k != nil {
		fmt.Fprintln(k.pipe, "goodbye")
		k.pipe.Close()
	}
}

// kill ends a keeper that does not end by itself, and reports whether it had to.
// It is our child and was not collected, so the number is still its own.
func (k *keeper) kill() bool {
	if k == nil || k.pid <= 1 || k.killed {
		return false
	}
	k.killed = true
	return unix.Kill(k.pid, unix.SIGKILL) == nil
}
