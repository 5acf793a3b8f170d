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
	Broken bool            // the watchdog was killed, and so was the command

	// Left is how many processes of the command live still, though all was done to kill them: they
	// belong to another user. The watchdog goes on trying. The lock must not be given back.
	Left int

	// Asked means that the command has ended because we were told to end: by a signal that
	// asks for nothing else, by a hangup that it did not survive, or from the terminal.
	Asked bool
}

// Wait waits until the command has ended, with everything it has started. Meanwhile it passes
// signals on, keeps the terminal where it belongs, and ends the command when the lock is
// lost. It has no limit, but for processes that it may not kill: it leaves those when the lease
// of the lost lock is over. Unless End.Left says so, the lock may be released when it
// returns how the command has ended. [Process.Close] must be called then.
func (p *Process) Wait() End {
	tick := time.NewTicker(p.Tick)
	defer tick.Stop()
	lost := p.Lock.Context().Done()
	for !p.empty && !p.stuck() {
		select {
		case <-lost:
			lost = nil
			p.onLoss()
		case <-p.kill:
			p.kill = nil
			p.killAll()
		case <-p.leave:
			p.leave, p.over = nil, true
		case r, ok := <-p.reports:
			p.onReport(r, ok)
		case ev, ok := <-p.events:
			p.onEvent(ev, ok)
		case sig := <-p.Signals:
			p.onSignal(sig)
		case <-tick.C:
			p.onTick()
		}
	}
	if err := p.Lock.Err(); err != nil && !p.lost { // the context's timer may be late
		p.lost = true
		p.Say("%v; the command has ended", err)
	}
	p.Terminal.takeBack(p.pid)
	end := End{Status: p.status, Lost: p.lost, Late: p.late, Broken: p.broken, Asked: p.wasAsked()}
	if !p.empty {
		end.Left = p.denied
	}
	return end
}

// stuck reports whether only processes are left that we may not kill, and the lease is over.
func (p *Process) stuck() bool { return p.over && p.denied > 0 }

// onLoss asks everything to end and sets the time of the kill: before the lease
// ends, or, if it has no lease, so much later.
func (p *Process) onLoss() {
	p.lost = true
	cause := context.Cause(p.Lock.Context())
	if p.IgnoreLoss {
		p.Say("%v; the command continues without the lock", cause)
		return
	}
	wait := p.KillAfter
	if deadline := p.Lock.Deadline(); !deadline.IsZero() {
		wait = min(wait, time.Until(deadline)-KillReserve)
	}
	p.leaveLater()
	if wait <= 0 || p.Signal == unix.SIGKILL {
		p.killAll()
		p.Say("%v; killing the command", cause)
		return
	}
	p.watchdog.order(order{Signal: p.Signal, All: true})
	p.watchdog.order(order{Signal: unix.SIGCONT, All: true}) // a stopped process does not react
	p.kill = time.After(wait)
	p.Say("%v; sending %s to the command, SIGKILL in %v", cause, unix.SignalName(p.Signal), wait.Round(time.Millisecond))
}

// leaveLater sets the time when processes that we may not kill no longer keep us: when the lease
// of the lost lock is over, or, if it has none, when all was done to kill them.
func (p *Process) leaveLater() {
	wait := p.KillAfter + patience
	if deadline := p.Lock.Deadline(); !deadline.IsZero() {
		wait = time.Until(deadline)
	}
	p.leave = time.After(wait)
}

// killAll has everything killed, until nothing is left.
func (p *Process) killAll() { p.watchdog.order(order{Kill: true}) }

// onReport acts on a report of the watchdog. Without one the watchdog is gone.
func (p *Process) onReport(r report, ok bool) {
	switch {
	case !ok:
		p.reports = nil
		p.takeOver()
	case r.Stopped != 0:
		p.onStop(r.Stopped)
	case r.Ended != nil:
		p.onEnd(*r.Ended)
	case r.Left > 0:
		p.Say("the command has ended; waiting for processes that it started (%d)%s", r.Left, p.Hint)
	case r.Refused != 0:
		p.onRefusal(r.Refused, r.Denied)
	case r.Empty:
		p.empty, p.late = true, r.Late
	}
}

// onEnd notes the end of the command itself.
func (p *Process) onEnd(status unix.WaitStatus) {
	p.ended, p.status = true, status
	p.Terminal.takeBack(p.pid)
}

// onRefusal tells people of processes that belong to another user.
func (p *Process) onRefusal(sig unix.Signal, denied int) {
	if sig == unix.SIGKILL {
		p.denied = denied
	}
	if denied == 0 {
		return
	}
	if sig == unix.SIGKILL {
		p.Say("processes of the command belong to another user and cannot be killed (%d); the lock is not released while they run", denied)
		return
	}
	p.Say("%s cannot be sent to processes of the command that belong to another user", unix.SignalName(sig))
}

// onEvent notes what became of a child of ours: the watchdog, or the command when the watchdog
// is gone.
func (p *Process) onEvent(ev waited, ok bool) {
	switch {
	case !ok:
		p.events, p.buried = nil, true
	case ev.pid == p.watchdog.pid && ev.gone():
		p.buried = true
	case ev.pid == p.watchdog.pid && ev.status.Stopped():
		p.watchdog.goOn() // it guards nobody while it is stopped
	case ev.pid == p.pid && ev.gone():
		p.onEnd(ev.status)
	}
}

// takeOver waits for what a watchdog that was killed has left to us, and kills it, unless the
// command may outlive its lock. It returns when nothing is left, or when only processes are left
// that we may not kill, and the lease of a lost lock is over.
func (p *Process) takeOver() {
	p.broken = !p.IgnoreLoss
	if p.broken && p.pid != 0 {
		p.Say("lock-watchdog was killed; killing the command")
	}
	var lost <-chan struct{}
	if !p.lost {
		lost = p.Lock.Context().Done()
	}
	again := time.NewTicker(killAgain)
	defer again.Stop()
	for p.denied = 0; !p.buried || p.own.roots() > 0; {
		if p.broken {
			p.own.kill(killLimit)
			if p.own.denied != p.denied {
				p.onRefusal(unix.SIGKILL, p.own.denied)
			}
		}
		if p.stuck() || p.ended && p.IgnoreOrphans && !p.broken {
			break
		}
		select {
		case <-lost:
			lost, p.lost = nil, true
			p.leaveLater()
		case <-p.leave:
			p.leave, p.over = nil, true
		case ev, ok := <-p.events:
			p.onEvent(ev, ok)
		case sig := <-p.Signals:
			if !p.broken {
				p.own.signal(sig.(unix.Signal), false)
			}
		case <-again.C:
		}
	}
	p.empty = !p.stuck()
}

// onStop follows the command into a stop that the terminal made, or gives it the
// terminal if that is all it stopped for.
func (p *Process) onStop(sig unix.Signal) {
	switch sig {
	case unix.SIGTTIN, unix.SIGTTOU:
		if p.Terminal.lend(p.pid) {
			p.watchdog.order(order{Signal: unix.SIGCONT})
			return
		}
	case unix.SIGSTOP:
		if !p.Terminal.belongsTo(p.pid) {
			return // somebody stopped just the command; the lock stays
		}
	}
	if p.Terminal == nil || p.ended {
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
	p.watchdog.order(order{Signal: sig.(unix.Signal)})
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
	p.watchdog.order(order{Signal: unix.SIGCONT})
}

// onTick tells the watchdog the deadline, and learns which of our children are strangers: where
// there were some from the start, or where we are the first process of a container. A child that
// is there at two ticks, while a watchdog has all that is the command's, is one.
func (p *Process) onTick() {
	if !p.IgnoreLoss && !p.lost { // after a loss the last deadline stays the last
		p.watchdog.inform(p.Lock.Deadline())
	}
	if len(p.own.spare) == 0 && os.Getpid() != 1 {
		return
	}
	now := set(ownChildren())
	delete(now, p.watchdog.pid)
	for pid := range p.seen {
		if now[pid] {
			p.own.spare[pid] = true
		}
	}
	for pid := range p.own.spare {
		if !now[pid] {
			delete(p.own.spare, pid) // its number may be given to another process
		}
	}
	p.seen = now
}

// Close waits for the end of the watchdog, some seconds at most: not every init collects what we
// leave, and to the next command it would be a stranger. It is called after the release of
// the lock, which others may wait for.
func (p *Process) Close() {
	defer p.watchdog.conn.Close()
	defer close(p.done)
	if p.stuck() {
		return // it goes on
	}
	enough, killed := time.After(patience), false
	for !p.buried {
		select {
		case ev, ok := <-p.events:
			p.onEvent(ev, ok)
		case <-enough:
			if p.watchdog.kill(); killed {
				return
			}
			killed, enough = true, time.After(patience)
		}
	}
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
