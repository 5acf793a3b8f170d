//go:build unix

package main

import (
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// terminal is the one that controls us; nil means that none does, and its
// methods then do nothing.
type terminal struct {
	fd      int
	own     int  // our process group
	wants   bool // the command has used the terminal, so it gets it back after a stop
	ignores bool // ignoreStops is in force
}

// openTerminal returns our controlling terminal, or nil.
func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd: fd, own: unix.Getpgrp()}
}

// wanted reports whether the command gets the terminal from the start: we have
// it, and both its input and its output are there. With an output elsewhere, a
// pager behind the pipe may need the terminal.
func (t *terminal) wanted() bool {
	if t == nil || !t.belongsTo(t.own) {
		return false
	}
	t.wants = controls(os.Stdin) && controls(os.Stdout)
	return t.wants
}

// belongsTo reports whether group is in the foreground.
func (t *terminal) belongsTo(group int) bool {
	if t == nil {
		return false
	}
	foreground, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && foreground == group
}

// give hands the terminal to group, if it is ours to give, and reports whether
// group has it now.
func (t *terminal) give(group int) bool {
	if t.belongsTo(t.group()) {
		unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
	}
	return t.belongsTo(group)
}

// lend is give to a command that turned out to need the terminal: from now on it
// gets it back after a stop.
func (t *terminal) lend(group int) bool {
	if t != nil {
		t.wants = true
	}
	return t.give(group)
}

// giveAgain gives the terminal back to a command that had it before a stop.
func (t *terminal) giveAgain(group int) {
	if t != nil && t.wants {
		t.give(group)
	}
}

// takeBack takes the terminal from the command, unless a shell has it by now.
func (t *terminal) takeBack(group int) {
	if t.belongsTo(group) {
		t.take()
	}
}

// take brings us to the foreground.
func (t *terminal) take() { unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.own) }

func (t *terminal) group() int {
	if t == nil {
		return 0
	}
	return t.own
}

// ignoreStops lets us handle the terminal from the background. The command must
// have been started by then, or it would ignore that signal as well.
func (t *terminal) ignoreStops() {
	if t != nil {
		signal.Ignore(unix.SIGTTOU)
		t.ignores = true
	}
}

// heedStops undoes ignoreStops for a command that is about to start: it does not
// inherit a signal that is handled.
func (t *terminal) heedStops() {
	if t != nil && t.ignores {
		signal.Notify(make(chan os.Signal, 1), unix.SIGTTOU)
		t.ignores = false
	}
}

// controls reports whether f is our controlling terminal.
func controls(f *os.File) bool {
	_, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil
}

// isTTY reports whether w is a terminal.
func isTTY(w io.Writer) bool {
	f := fileOf(w)
	if f == nil {
		return false
	}
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}
