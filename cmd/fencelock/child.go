//go:build unix

package main

import (
	"fmt"
	"os"
	"runtime"
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
	tick       time.Duration // how often the watchdog hears of the deadline

	env      func(*fencelock.Lock) []string // the command's environment
	pid      int                            // also the process group
	family   *family
	watchdog *watchdog
	events   <-chan waited
	status   unix.WaitStatus
	ended    bool             // the command itself has ended; what it left behind may not
	tell     <-chan time.Time // when to speak of what it left behind

	lost   bool
	asked  bool // a signal that ends programs was passed on
	hungUp bool // or one that ends many
	killed bool
	byDog  bool             // the watchdog killed the command
	kill   <-chan time.Time // when to kill; nil until the lock is lost
}

// start runs the command, from a thread that stays until we end: the kernel ties the
// parent-death signal to the thread that forks.
func (c *child) start(path string, argv, env []string, locked []*os.File) error {
	runtime.LockOSThread()
	adoptOrphans()
	c.family = newFamily(ownerVariable + "=" + c.lock.Owner())
	if !c.ignoreLoss {
		if err := c.startWatchdog(); err != nil {
			return &exitError{code: exitStart, err: fmt.Errorf("the watchdog of the command does not start: %w", err)}
		}
	}
	inherited, err := inheritable(locked) // after the watchdog, which must not have them
	if err != nil {
		c.watchdog.dismiss()
		return &exitError{code: exitStart, err: fmt.Errorf("the command cannot inherit the lock: %w", err)}
	}
	defer closeAll(inherited)
	attr := &syscall.SysProcAttr{Setpgid: true}
	if c.tty.wanted() {
		attr.Foreground, attr.Ctty = true, c.tty.fd
	}
	if !c.ignoreLoss {
		dieWithParent(attr)
	}
	c.tellWatchdog() // we may freeze before the next time
	c.tty.heedStops()
	pid, err := startProcess(path, argv, &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}, Sys: attr})
	c.tty.ignoreStops()
	if err != nil {
		if attr.Foreground {
			c.tty.take()
		}
		c.watchdog.dismiss()
		return startError(argv[0], err)
	}
	c.pid, c.family.command = pid, pid
	c.tellWatchdog()
	c.events = reap(c.family.collect)
	return nil
}

// startProcess is os.StartProcess without the trials of the kernel's pidfds, which cost
// a process of their own: we collect our children by number.
func startProcess(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
	pid, _, err := syscall.StartProcess(path, argv, attr)
	return pid, err
}

func (c *child) startWatchdog() error {
	w, err := startWatchdog()
	if err == nil {
		c.watchdog = w
		c.family.watchdogs[w.pid] = true
	}
	return err
}

// tellWatchdog passes the group, once there is one, and the deadline on, and replaces
// a watchdog that died.
func (c *child) tellWatchdog() {
	if c.ignoreLoss {
		return
	}
	if c.watchdog == nil && c.startWatchdog() != nil {
		return // the next tick tries again
	}
	c.watchdog.guard(c.pid)
	if deadline := c.lock.Deadline(); !deadline.IsZero() && !c.lost {
		c.watchdog.until(deadline.Add(-killReserve))
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

// send sends a signal to the command: to its group, and to those who left the group
// if it kills or if the command itself has ended.
func (c *child) send(sig unix.Signal) {
	c.family.send(sig, c.ended || sig == unix.SIGKILL)
}

// inheritable returns descriptors of the same open files that a command will get
// under the same numbers: from 100 up, since lower ones may be its caller's own.
func inheritable(files []*os.File) (dups []*os.File, err error) {
	for _, f := range files {
		fd := -1
		for _, lowest := range []int{100, 10, 3} { // a tight limit may allow no more
			if fd, err = unix.FcntlInt(f.Fd(), unix.F_DUPFD, lowest); err == nil {
				break
			}
		}
		if err != nil {
			closeAll(dups)
			return nil, err
		}
		dups = append(dups, os.NewFile(uintptr(fd), f.Name()))
	}
	return dups, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
