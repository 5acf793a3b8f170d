//go:build unix

package supervise

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long what a command left behind may go on before somebody is told.
const patience = time.Second

// End is how a command has ended.
type End struct {
	Status unix.WaitStatus // its own, not that of what it left behind
	Lost   bool            // the lock was lost before all had ended
	Late   bool            // the watchdog killed the command, since this process was late to do it

	// Asked means that the command has ended because we were told to end: by a signal that
	// asks for nothing else, by a hangup that it did not survive, or from the terminal.
	Asked bool
}

// Wait waits until the command has ended, with all it left behind. Meanwhile it passes
// signals on, keeps the terminal where it belongs, and ends the command when the lock is
// lost. It has no limit. It returns how the command has ended, as far as that is known before the
// watchdog has ended. The lock may be released when it returns, and [Process.Close]
// must be called then.
func (p *Process) Wait() End {
	tick := time.NewTicker(p.Tick)
	defer tick.Stop()
	lost := p.Lock.Context().Done()
	for !p.over() {
		select {
		case <-lost:
			lost = nil
			p.onLoss()
		case <-p.kill:
			p.kill = nil
			p.killAll()
		case ev, ok := <-p.events:
			if !ok {
				p.events = nil // none of those that are left is ours
				continue
			}
			p.onEvent(ev)
		case sig := <-p.Signals:
			p.onSignal(sig)
		case <-p.tell:
			p.Say("the command has ended; waiting for what it left behind (%d)%s", p.family.left(), p.Hint)
		case <-tick.C:
			p.onTick()
		}
	}
	if err := p.Lock.Err(); err != nil && !p.lost { // the context's timer may be late
		p.lost = true
		p.Say("%v; the command has ended", err)
	}
	p.Terminal.takeBack(p.pid)
	p.endWatchdog()
	return p.end()
}

// over reports whether there is nothing to wait for any more.
func (p *Process) over() bool {
	return p.family.ended && (p.IgnoreOrphans || p.family.left() == 0)
}

// onLoss asks the command to end and sets the time of its kill: before the lease
// ends, or, if it has no lease, so much later.
func (p *Process) onLoss() {
	p.lost = true
	cause := context.Cause(p.Lock.Context())
	if p.IgnoreLoss {
		p.Say("%v; the command goes on without it", cause)
		return
	}
	wait := p.KillAfter
	if deadline := p.Lock.Deadline(); !deadline.IsZero() {
		wait = min(wait, time.Until(deadline)-KillReserve)
	}
	if wait <= 0 {
		p.killAll()
		p.Say("%v; killing the command", cause)
		return
	}
	p.send(p.Signal)
	p.send(unix.SIGCONT) // a stopped process hears nothing
	p.kill = time.After(wait)
	p.Say("%v; sending %s to the command, SIGKILL in %v", cause, unix.SignalName(p.Signal), wait.Round(time.Millisecond))
}

// killAll kills everything. What is started at that very moment is killed at the
// next tick.
func (p *Process) killAll() {
	p.killed = true
	p.send(unix.SIGKILL)
}

// onEvent hears of a process that has ended, was stopped or goes on.
func (p *Process) onEvent(ev waited) {
	switch {
	case ev.pid == p.pid && ev.status.Stopped():
		p.onStop(ev.status.StopSignal())
	case ev.pid == p.pid && !ev.status.Continued():
		p.family.ended, p.status = true, ev.status
		p.Terminal.takeBack(p.pid)
		p.tell = time.After(patience)
	case ev.pid == p.watchdog.id() && ev.gone():
		p.watchdog.dismiss()
		p.onWatchdogEnd(ev)
	case ev.pid == p.watchdog.id() && ev.status.Stopped():
		p.watchdog.kill() // it guards nobody; the tick after its end brings the next one
	}
	if ev.gone() { // its number may be given to another process
		delete(p.family.strangers, ev.pid)
		delete(p.family.watchdogs, ev.pid)
	}
}

// onWatchdogEnd notes the end of the watchdog, and whether it killed the command:
// then we are late, on a busy machine or after a freeze.
func (p *Process) onWatchdogEnd(ev waited) {
	p.late = p.late || ev.status.Exited() && ev.status.ExitStatus() == hasKilled
	p.watchdog = nil
}

// onStop follows the command into a stop that the terminal made, or gives it the
// terminal if that is all it stopped for.
func (p *Process) onStop(sig unix.Signal) {
	switch sig {
	case unix.SIGTTIN, unix.SIGTTOU:
		if p.Terminal.lend(p.pid) {
			p.send(unix.SIGCONT)
			return
		}
	case unix.SIGSTOP:
		if !p.Terminal.belongsTo(p.pid) {
			return // somebody stopped just the command; the lock stays
		}
	}
	if p.Terminal == nil || p.family.ended {
		return
	}
	p.Terminal.takeBack(p.pid)
	StopOwnGroup(p.Signals)
	p.resume()
}

// onSignal passes a signal on, and remembers those that ask to end.
func (p *Process) onSignal(sig os.Signal) {
	if sig == unix.SIGCONT {
		p.resume()
		return
	}
	p.asked = p.asked || sig == unix.SIGTERM || sig == unix.SIGINT || sig == unix.SIGQUIT || sig == unix.SIGABRT
	p.hungUp = p.hungUp || sig == unix.SIGHUP
	p.send(sig.(unix.Signal))
}

// resume goes on after a stop: the lock may be gone, since nobody renewed it.
func (p *Process) resume() {
	if err := p.Lock.Err(); err != nil && !p.IgnoreLoss {
		p.lost = true
		p.killAll()
		p.Say("%v; killing the command", err)
		return
	}
	p.Terminal.giveAgain(p.pid)
	p.send(unix.SIGCONT)
}

// onTick repeats what one time may not be enough for.
func (p *Process) onTick() {
	if p.killed {
		p.send(unix.SIGKILL)
	}
	p.tellWatchdog()
}

// endWatchdog lets the watchdog go, which guards nobody now. Unless it may be the one
// that killed the command, and says so with its exit code, it is killed: it may hardly
// have started, or be stopped. It ends while the lock is released.
func (p *Process) endWatchdog() {
	p.watchdog.dismiss()
	if !p.status.Signaled() || p.status.Signal() != unix.SIGKILL {
		p.watchdog.kill()
	}
}

// Close waits for the watchdog's end, some seconds at most, and says how the command has
// ended: not every init collects what we leave, and the next command must not meet what
// is left of this one. It is called after the release of the lock, which others may wait
// for.
func (p *Process) Close() End {
	enough := time.After(time.Second)
	for p.events != nil && (p.watchdog != nil || !p.IgnoreOrphans && !p.family.crowded) {
		select {
		case ev, ok := <-p.events:
			if !ok {
				p.events = nil
			} else if ev.pid == p.watchdog.id() && ev.gone() {
				p.onWatchdogEnd(ev)
			}
		case <-enough:
			if !p.watchdog.kill() {
				return p.end()
			}
			enough = time.After(time.Second)
		}
	}
	return p.end()
}

// end is how the command has ended, as far as it is known.
func (p *Process) end() End {
	killed := p.status.Signaled() && p.status.Signal() == unix.SIGKILL
	return End{Status: p.status, Lost: p.lost, Late: p.late && killed, Asked: p.wasAsked()}
}

// wasAsked reports whether the command has ended because we were told to end. The
// terminal tells its foreground group, so the command alone.
func (p *Process) wasAsked() bool {
	if p.asked || !p.status.Signaled() {
		return p.asked
	}
	switch p.status.Signal() {
	case unix.SIGHUP:
		return p.hungUp || p.Terminal != nil
	case unix.SIGINT, unix.SIGQUIT:
		return p.Terminal != nil
	}
	return false
}
