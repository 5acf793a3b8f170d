//go:build unix

package main

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// supervise waits until the command has ended, with all it left behind, and
// returns the exit code. Meanwhile it passes signals on, keeps the terminal
// where it belongs, and ends the command when the lock is lost. The watchdog is
// left to reapWatchdog.
func (c *child) supervise() int {
	tick := time.NewTicker(c.tick)
	defer tick.Stop()
	lost := c.lock.Context().Done()
	for !c.over() {
		select {
		case <-lost:
			lost = nil
			c.onLoss()
		case <-c.kill:
			c.kill = nil
			c.killAll()
		case ev, ok := <-c.events:
			if !ok {
				c.events = nil // none of those that are left is ours
				continue
			}
			c.onEvent(ev)
		case sig := <-c.signals:
			c.onSignal(sig)
		case <-c.tell:
			c.app.say("the command has ended; waiting for what it left behind (%d), which -o would not", c.family.left())
		case <-tick.C:
			c.onTick()
		}
	}
	if err := c.lock.Err(); err != nil && !c.lost {
		c.lost = true
		c.app.say("%v; the command has ended", err)
	}
	c.tty.takeBack(c.pid)
	c.endWatchdog()
	return c.code()
}

// endWatchdog lets the watchdog go, which guards nobody now. Unless it may be the one
// that killed the command, and says so with its exit code, it is killed: it may hardly
// have started, or be stopped. It ends while the lock is released.
func (c *child) endWatchdog() {
	c.watchdog.dismiss()
	if !c.status.Signaled() || c.status.Signal() != unix.SIGKILL {
		c.watchdog.kill()
	}
}

// reapWatchdog waits for the watchdog's end: not every init collects what we leave,
// and the next command must not meet what is left of this one.
func (c *child) reapWatchdog() {
	enough := time.After(time.Second)
	for c.events != nil && (c.watchdog != nil || !c.closing && !c.family.crowded) {
		select {
		case ev, ok := <-c.events:
			if !ok {
				c.events = nil
			} else if ev.pid == c.watchdog.id() && gone(ev) {
				c.onWatchdogEnd(ev)
			}
		case <-enough:
			if !c.watchdog.kill() {
				return
			}
			enough = time.After(time.Second)
		}
	}
}

func gone(ev waited) bool { return ev.status.Exited() || ev.status.Signaled() }

// over reports whether there is nothing to wait for any more.
func (c *child) over() bool {
	return c.ended && (c.closing || c.family.left() == 0)
}

// onLoss asks the command to end and sets the time of its kill: before the lease
// ends, or, if it has no lease, so much later.
func (c *child) onLoss() {
	c.lost = true
	cause := context.Cause(c.lock.Context())
	if c.ignoreLoss {
		c.app.say("%v; the command goes on without it", cause)
		return
	}
	wait := c.killAfter
	if deadline := c.lock.Deadline(); !deadline.IsZero() {
		wait = min(wait, time.Until(deadline)-killReserve)
	}
	if wait <= 0 {
		c.killAll()
		c.app.say("%v; killing the command", cause)
		return
	}
	c.send(c.signal)
	c.send(unix.SIGCONT) // a stopped process hears nothing
	c.kill = time.After(wait)
	c.app.say("%v; sending %s to the command, SIGKILL in %v", cause, unix.SignalName(c.signal), wait.Round(time.Millisecond))
}

// killAll kills everything. What is started at that very moment is killed at the
// next tick.
func (c *child) killAll() {
	c.killed = true
	c.send(unix.SIGKILL)
}

func (c *child) onEvent(ev waited) {
	if gone(ev) {
		defer c.family.forget(ev.pid)
	}
	switch {
	case ev.pid == c.pid && ev.status.Stopped():
		c.onStop(ev.status.StopSignal())
	case ev.pid == c.pid && !ev.status.Continued():
		c.ended, c.status = true, ev.status
		c.tty.takeBack(c.pid)
		c.tell = time.After(patience)
	case ev.pid == c.watchdog.id() && gone(ev):
		c.watchdog.dismiss()
		c.onWatchdogEnd(ev)
	case ev.pid == c.watchdog.id() && ev.status.Stopped():
		c.watchdog.kill() // it guards nobody; the tick after its end brings the next one
	}
}

// onWatchdogEnd notes the end of the watchdog, and whether it killed the command:
// then we are late, on a busy machine or after a freeze.
func (c *child) onWatchdogEnd(ev waited) {
	c.byDog = c.byDog || ev.status.Exited() && ev.status.ExitStatus() == exitLost
	c.watchdog = nil
}

func (c *child) onTick() {
	if c.killed {
		c.send(unix.SIGKILL)
	}
	c.tellWatchdog()
}

func (c *child) onSignal(sig os.Signal) {
	if sig == unix.SIGCONT {
		c.resume()
		return
	}
	c.asked = c.asked || sig == unix.SIGTERM || sig == unix.SIGINT || sig == unix.SIGQUIT
	c.hungUp = c.hungUp || sig == unix.SIGHUP
	c.send(sig.(unix.Signal))
}

// onStop follows the command into a stop that the terminal made, or gives it the
// terminal if that is all it stopped for.
func (c *child) onStop(sig unix.Signal) {
	switch sig {
	case unix.SIGTTIN, unix.SIGTTOU:
		if c.tty.lend(c.pid) {
			c.send(unix.SIGCONT)
			return
		}
	case unix.SIGSTOP:
		if !c.tty.belongsTo(c.pid) {
			return // somebody stopped just the command; the lock stays
		}
	}
	if c.tty == nil || c.ended {
		return
	}
	c.tty.takeBack(c.pid)
	stopOwnGroup(c.signals)
	c.resume()
}

// resume goes on after a stop: the lock may be gone, since nobody renewed it.
func (c *child) resume() {
	if err := c.lock.Err(); err != nil && !c.ignoreLoss {
		c.lost = true
		c.killAll()
		c.app.say("%v; killing the command", err)
		return
	}
	c.tty.giveAgain(c.pid)
	c.send(unix.SIGCONT)
}
