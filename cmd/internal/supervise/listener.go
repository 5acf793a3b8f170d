//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// A command that has the terminal is in a process group of its own, since a group can be killed in
// one step and the group of the wrapper must survive that. So Ctrl-C reaches only the command, not a
// script that runs the wrapper, and a shell, make or xargs goes on with its next step unless it gets
// the signal itself. The wrapper passes the signal on to its own group for that reason.
//
// To see the signal, the watchdog starts a listener: a process that joins the group of the command,
// blocks all signals and reads INT and QUIT with their origin. Neither the watchdog nor the wrapper
// can be that process: "timeout -k" and "kill -9 0" kill the whole group. To leave the foreground to
// the group of the wrapper would not do either: programs such as wget and pv behave differently in
// the background.
//
// Without a listener, as on systems other than Linux and at the very start of a command, only a
// command that died of the signal shows that there was one.

// listenLimit is how long a listener may take for its last report after the end of the command, and
// how long a signal of this process to its own group may take.
const listenLimit = time.Second

// onTyped reports a signal of the terminal to the wrapper. If ok is false, the listener has ended.
func (s *watchdog) onTyped(sig unix.Signal, ok bool) {
	if !ok {
		s.typed = nil
		return
	}
	_ = s.send(report{Typed: sig})
}

// endListener ends the listener when the command has ended. A signal that has ended the command reached
// the listener at the same time, so endListener waits for its last report.
func (s *watchdog) endListener() {
	_ = children.signal(s.listener, unix.SIGTERM) // there may be no listener
	_ = children.signal(s.listener, unix.SIGCONT)
	for limit := time.After(min(max(s.due-bootTime(), 0), listenLimit)); s.typed != nil; {
		select {
		case sig, ok := <-s.typed:
			s.onTyped(sig, ok)
		case <-limit:
			_ = children.signal(s.listener, unix.SIGKILL)
			return
		}
	}
}

// onTyped passes a signal that the terminal has sent to the command on to the group of this process,
// and discards the copy that this process gets: the command has the signal already.
func (p *Process) onTyped(sig unix.Signal) {
	p.typed = sig
	unix.Kill(0, sig)
	if signal.Ignored(sig) {
		return
	}
	var others []os.Signal
	for limit := time.After(listenLimit); ; {
		select {
		case s := <-p.Signals:
			if s != sig {
				others = append(others, s)
				continue
			}
		case <-limit:
		}
		p.putBack(others)
		return
	}
}

// inferTyped is onTyped for a command without a listener that has died of the signal.
func (p *Process) inferTyped() {
	if p.listens || p.typed != 0 || !p.end.Status.Signaled() || !p.Terminal.belongsTo(p.pid) {
		return
	}
	if sig := p.end.Status.Signal(); (sig == unix.SIGINT || sig == unix.SIGQUIT) && sig != p.end.Passed {
		p.onTyped(sig)
	}
}
