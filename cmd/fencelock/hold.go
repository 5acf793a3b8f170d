//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

// outcome is how a command under a lock has ended.
type outcome struct {
	lost  bool  // the lock was gone before the command was
	asked bool  // somebody asked us to end, and the command with us
	begun bool  // it was started
	err   error // carries the exit code
}

// hold runs the command under its lock, and gives the lock back as soon as the
// command is gone.
func (c *child) hold(engine driver.Engine, path string, argv []string) outcome {
	c.app.detail("acquired %q, token %d", c.lock.Name(), c.lock.Token())
	began := time.Now()
	if err := c.begin(engine, path, argv); err != nil {
		c.lock.Release() // nothing runs; if this fails, the lease ends
		return outcome{err: err}
	}
	code := c.supervise()
	freed := giveBack(c.lock)
	c.reapWatchdog()
	if c.killedByWatchdog() && !c.lost {
		c.lost, code = true, exitLost
		c.app.say("lock %q was not renewed in time; the command was killed before others could get in", c.lock.Name())
	}
	if freed == nil {
		c.app.detail("released %q after %v", c.lock.Name(), time.Since(began).Round(time.Millisecond))
	}
	return outcome{
		lost:  c.lost || errors.Is(freed, driver.ErrNotHeld),
		asked: c.wasAsked(),
		begun: true,
		err:   c.verdict(code, freed),
	}
}

// killedByWatchdog reports whether the watchdog was faster than we were to end the
// command.
func (c *child) killedByWatchdog() bool {
	return c.byDog && c.status.Signaled() && c.status.Signal() == unix.SIGKILL
}

// begin starts the command, with the descriptors of a lock that lives in some. Ours
// are closed: they would keep the lock after its release.
func (c *child) begin(engine driver.Engine, path string, argv []string) error {
	var locked []*os.File
	if inheritor, ok := engine.(driver.Inheritor); ok && !c.closing {
		var err error
		if locked, err = inheritor.Inherit(c.lock.Lease()); err != nil {
			return &exitError{code: exitStart, err: fmt.Errorf("the command cannot inherit the lock: %w", err)}
		}
		defer closeAll(locked)
	}
	return c.start(path, argv, c.env(c.lock), locked)
}

// giveBack releases the lock. One that was lost, perhaps because the engine is
// silent, is not worth a wait beyond the end of its lease.
func giveBack(lock *fencelock.Lock) error {
	deadline := lock.Deadline()
	if lock.Context().Err() == nil || deadline.IsZero() {
		return lock.Release()
	}
	released := make(chan error, 1)
	go func() { released <- lock.Release() }() // ends after the release timeout, or with the process
	select {
	case err := <-released:
		return err
	case <-time.After(time.Until(deadline)):
		return fmt.Errorf("%w: the lease is over", driver.ErrNotHeld)
	}
}

// verdict turns a release that failed into the exit code of a lost lock, or a
// word of warning if only the release went wrong.
func (c *child) verdict(code int, freed error) error {
	switch {
	case freed == nil || code == exitLost:
	case errors.Is(freed, driver.ErrNotHeld):
		return &exitError{code: exitLost, err: fmt.Errorf("the command ended with code %d, but %w", code, freed)}
	default:
		c.app.say("the command ended, but its lock could not be released: %v", freed)
	}
	if code == exitSignal+int(unix.SIGINT) && c.status.Signaled() {
		return &exitError{code: code, interrupted: true}
	}
	return exitWith(code)
}

// exitWith ends the program with the command's own code, in silence.
func exitWith(code int) error {
	if code == 0 {
		return nil
	}
	return &exitError{code: code}
}

// wasAsked reports whether the command has ended because we were told to end: by a
// signal that asks for nothing else, by a hangup that it did not survive, or from
// the terminal, which tells the command alone.
func (c *child) wasAsked() bool {
	if c.asked || !c.status.Signaled() {
		return c.asked
	}
	switch c.status.Signal() {
	case unix.SIGHUP:
		return c.hungUp || c.tty != nil
	case unix.SIGINT, unix.SIGQUIT:
		return c.tty != nil
	}
	return false
}
