//go:build unix

package main

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
)

// child is the command that runs under a lock, in a process group of its own,
// with all processes it starts. It belongs to one goroutine, the main one.
type child struct {
	app        *app
	lock       *fencelock.Lock
	signals    chan os.Signal
	tty        *terminal
	closing    bool          // processes that are left behind are nobody's business
	ignoreLoss bool          // a loss does not end the command
	signal     unix.Signal   // asks the command to end
	killAfter  time.Duration // how long it has to end
	tick       time.Duration // how often the keeper hears of the deadline

	pid    int // also the process group
	keeper *keeper
	events <-chan waited
	status unix.WaitStatus
	ended  bool             // the command itself has ended; what it left behind may not
	tell   <-chan time.Time // when to speak of what it left behind

	lost   bool
	asked  bool // a signal that ends programs was passed on
	hungUp bool // or one that ends many
	killed bool
	struck bool             // the keeper killed the command
	kill   <-chan time.Time // when to kill; nil until the lock is lost
}

// start runs the command. It must be called on the main thread, which is locked:
// the kernel ties the parent-death signal to the thread that forks.
func (c *child) start(path string, argv, env []string, files []*os.File) error {
	adoptOrphans()
	if !c.ignoreLoss {
		var err error
		if c.keeper, err = startKeeper(); err != nil {
			return fmt.Errorf("the keeper of the command does not start: %w", err)
		}
	}
	attr := &syscall.SysProcAttr{Setpgid: true}
	if c.tty.wanted() {
		attr.Foreground, attr.Ctty = true, c.tty.fd
	}
	if !c.ignoreLoss {
		dieWithParent(attr)
	}
	c.tty.heedStops()
	process, err := os.StartProcess(path, argv, &os.ProcAttr{Env: env, Files: files, Sys: attr})
	c.tty.ignoreStops()
	if err != nil {
		if attr.Foreground {
			c.tty.take()
		}
		c.keeper.dismiss()
		return startError(argv[0], err)
	}
	c.pid = process.Pid
	c.keeper.guard(c.pid)
	c.tellKeeper()
	c.events = reap()
	return nil
}

// tellKeeper passes the deadline on, and replaces a keeper that died.
func (c *child) tellKeeper() {
	if c.ignoreLoss {
		return
	}
	if c.keeper == nil {
		k, err := startKeeper()
		if err != nil {
			return // the next tick tries again
		}
		c.keeper = k
		c.keeper.guard(c.pid)
	}
	if deadline := c.lock.Deadline(); !deadline.IsZero() && !c.lost {
		c.keeper.until(deadline.Add(-killReserve))
	}
}

// code is the exit code the command has earned.
func (c *child) code() int {
	switch {
	case c.lost:
		return exitLost
	case c.status.Signaled():
		return exitSignal + int(c.status.Signal())
	}
	return c.status.ExitStatus()
}

// send sends a signal to the group, and to those who left it. Those are known
// only where orphans are adopted.
func (c *child) send(sig unix.Signal) {
	unix.Kill(-c.pid, sig) // fails once the group is empty
	if !c.ended && sig != unix.SIGKILL {
		return
	}
	for _, p := range descendants(os.Getpid()) {
		if p.pid != c.keeper.id() && p.group != c.pid {
			unix.Kill(p.pid, sig)
		}
	}
}

// left counts the processes that must end before the lock is released.
func (c *child) left() int {
	n := 0
	for _, p := range descendants(os.Getpid()) {
		if p.pid != c.keeper.id() {
			n++
		}
	}
	if n == 0 && unix.Kill(-c.pid, 0) == nil {
		n = 1 // those who are not ours to wait for
	}
	return n
}
