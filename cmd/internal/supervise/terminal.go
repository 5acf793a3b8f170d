//go:build unix

package supervise

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Terminal is the controlling terminal, which a command in the foreground needs: the kernel stops a
// process that reads from the terminal in the background. The methods of a nil Terminal do nothing.
// Only the goroutine of one Process may use it at a time.
type Terminal struct {
	fd      int
	state   *term.State // as it was when it was opened; nil if that is unknown
	own     int         // our process group
	wants   bool        // the command used the terminal and gets it back after a stop
	ignores bool        // ignoreStops is in force
}

// OpenTerminal returns the controlling terminal, or nil. It stays open until this process ends.
func OpenTerminal() *Terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	state, _ := term.GetState(fd)
	return &Terminal{fd: fd, state: state, own: unix.Getpgrp()}
}

// restore sets the modes of the terminal as they were at the start, after a command that has used it
// and was ended by a signal: it may have left the terminal without echo.
func (t *Terminal) restore() {
	if t != nil && t.wants && t.state != nil && t.belongsTo(t.own) {
		_ = term.Restore(t.fd, t.state) // the terminal may be gone
	}
}

// wanted reports whether the command gets the terminal at the start. It does if this process is in
// the foreground, and stdin and stdout are the terminal. If stdout is a pipe, the reader may be a
// pager that needs the terminal.
func (t *Terminal) wanted() bool {
	if t == nil || !t.belongsTo(t.own) {
		return false
	}
	t.wants = controls(os.Stdin) && controls(os.Stdout)
	return t.wants
}

// controls reports whether f is our controlling terminal.
func controls(f *os.File) bool {
	_, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil
}

// ignoreStops ignores TTOU, so that this process can control the terminal from the background. It
// is called after the start of the watchdog, since the watchdog and the command would inherit the
// ignored signal.
func (t *Terminal) ignoreStops() {
	if t != nil {
		signal.Ignore(unix.SIGTTOU)
		t.ignores = true
	}
}

// heedStops undoes ignoreStops. It is called before the start of a watchdog. It handles TTOU
// instead of ignoring it, since a child does not inherit a handler.
func (t *Terminal) heedStops() {
	if t != nil && t.ignores {
		signal.Notify(make(chan os.Signal, 1), unix.SIGTTOU)
		t.ignores = false
	}
}

// belongsTo reports whether group is the foreground process group.
func (t *Terminal) belongsTo(group int) bool {
	if t == nil {
		return false
	}
	foreground, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && foreground == group
}

// give gives the terminal to group if this process has it, and reports whether group has it now.
func (t *Terminal) give(group int) bool {
	if t != nil && t.belongsTo(t.own) {
		unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
	}
	return t.belongsTo(group)
}

// lend is give for a command that was stopped because it needs the terminal. After later stops it
// gets the terminal again.
func (t *Terminal) lend(group int) bool {
	if t != nil {
		t.wants = true
	}
	return t.give(group)
}

// giveAgain gives the terminal back to a command that had it before a stop.
func (t *Terminal) giveAgain(group int) {
	if t != nil && t.wants {
		t.give(group)
	}
}

// takeBack takes the terminal from the command, unless a shell has it by now.
func (t *Terminal) takeBack(group int) {
	if t.belongsTo(group) {
		t.take()
	}
}

// take brings this process to the foreground.
func (t *Terminal) take() { unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.own) }
