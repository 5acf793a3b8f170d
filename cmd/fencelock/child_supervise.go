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
// where it belongs, and ends the command when the lock is lost. The keeper is
// left to bury.
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
			c.strike()
		case ev, ok := <-c.events:
			if !ok {
				c.events = nil // none of those that are left is ours
				continue
			}
			c.onEvent(ev)
		case sig := <-c.signals:
			c.onSignal(sig)
		case <-c.tell:
			c.app.say("the command has ended; waiting for what it left behind (%d), which -o would not", c.left())
		case <-tick.C:
			c.onTick()
		}
	}
	if err := c.lock.Err(); err != nil && !c.lost {
		c.lost = true
		c.app.say("%v; the command has ended", err)
	}
	c.tty.takeBack(c.pid)
	c.keeper.dismiss()
	return c.code()
}

// bury waits for the keeper's end, briefly: not every init collects what we leave,
// and the next command must not meet what is left of this one. A keeper that was
// stopped, and does not hear that it is dismissed, is killed.
func (c *child) bury() {
	enough := time.After(time.Second)
	for c.events != nil && (c.keeper != nil || !c.closing) {
		select {
		case ev, ok := <-c.events:
			if !ok {
				c.events = nil
			} else if ev.pid == c.keeper.id() && gone(ev) {
				c.onKeeper(ev)
			}
		case <-enough:
			if !c.keeper.kill() {
				return
			}
			enough = time.After(time.Second)
		}
	}
}

func gone(ev waited) bool { return ev.status.Exited() || ev.status.Signaled() }

// over reports whether there is nothing to wait for any more.
func (c *child) over() bool {
	return c.ended && (c.closing || c.left() == 0)
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
		c.app.say("%v; killing the command", cause)
		c.strike()
		return
	}
	c.app.say("%v; sending %s to the command, SIGKILL in %v", cause, unix.SignalName(c.signal), wait.Round(time.Millisecond))
	c.send(c.signal)
	c.send(unix.SIGCONT) // a stopped process hears nothing
	c.kill = time.After(wait)
}

// strike kills everything. What is started at that very moment is killed at the
// next tick.
func (c *child) strike() {
	c.killed = true
	c.send(unix.SIGKILL)
}

func (c *child) onEvent(ev waited) {
	switch {
	case ev.pid == c.pid && ev.status.Stopped():
		c.onStop(ev.status.StopSignal())
	case ev.pid == c.pid && !ev.status.Continued():
		c.ended, c.status = true, ev.status
		c.tty.takeBack(c.pid)
		c.tell = time.After(patience)
	case ev.pid == c.keeper.id() && gone(ev):
		c.keeper.dismiss()
		c.onKeeper(ev)
	}
}

// onKeeper notes the end of the keeper, and whether it killed the command: then we
// are late, on a busy machine or after a freeze.
func (c *child) onKeeper(ev waited) {
	c.struck = c.struck || ev.status.Exited() && ev.status.ExitStatus() == exitLost
	c.keeper = nil
}

func (c *child) onTick() {
	if c.killed {
		c.send(unix.SIGKILL)
	}
	c.tellKeeper()
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
		c.app.say("%v; killing the command", err)
		c.strike()
		return
	}
	c.tty.giveAgain(c.pid)
	c.send(unix.SIGCONT)
}
