//go:build unix

package supervise

import (
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long processes left behind may run before that is reported.
const patience = time.Second

// End is how a command has ended.
type End struct {
	Status    unix.WaitStatus // of the command itself
	Lost      bool            // the lock was lost before all processes had ended
	Capped    bool            // Command.MaxRun was over before all processes had ended
	Cancelled bool            // Command.Cancel ended before all processes had ended
	Late      bool            // the watchdog killed the command at the deadline, before this process did
	Broken    bool            // the watchdog was killed, and then the command

	// Left is how many processes of the command still run because they belong to another user. The
	// watchdog keeps trying to kill them. The lock must not be released.
	Left int

	// Asked means that the command ended because of a signal such as TERM, a hangup that killed it,
	// or INT or QUIT from the terminal.
	Asked bool

	// Passed is the latest of EndSignals that was passed on, or 0. The command may have ended by itself
	// before it received the signal.
	Passed unix.Signal
}

// Wait waits until the command and all processes that it has started have ended. During that time
// it passes signals on, manages the terminal, and ends the command if the lock is lost. Wait has no
// time limit, with one exception: if processes cannot be killed, it returns when the lease of the
// lost lock has expired. Wait closes Command.Inherit, which would keep the lock. Unless End.Left is
// set, the lock may be released after Wait has returned. The caller must then call [Process.Close].
func (p *Process) Wait() End {
	defer closeAll(p.Inherit)
	tick := time.NewTicker(p.Tick)
	defer tick.Stop()
	lost := p.Lock.Context().Done()
	if p.MaxRun > 0 {
		p.maxOver = time.After(p.MaxRun)
	}
	if p.Cancel != nil {
		p.cancelled = p.Cancel.Done()
	}
	for !p.empty && !p.stuck() {
		select {
		case <-p.maxOver:
			p.onMax()
		case <-p.cancelled:
			p.onCancel()
		case <-lost:
			lost = nil
			p.onLoss()
		case <-p.kill:
			p.kill = nil
			p.killAll()
		case <-p.last:
			p.onLast()
		case <-p.watchdog.timeout:
			p.onTimeout()
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
	if err := p.Lock.Err(); err != nil && !p.end.Lost { // the timer of the context may be late
		p.end.Lost = true
		p.Say("%v; the command has ended", err)
	}
	p.Terminal.takeBack(p.pid)
	p.end.Asked = p.wasAsked() || p.typed != 0
	if !p.empty {
		p.end.Left = p.denied
	}
	return p.end
}

// stuck reports whether the lease has expired and the remaining processes cannot be killed. Without
// a watchdog, only this process keeps the files of a lock open, so it waits for them.
func (p *Process) stuck() bool {
	return p.over && p.denied > 0 && !(p.end.Broken && len(p.Inherit) > 0)
}

// onReport handles a report of the watchdog. ok is false if the watchdog is gone.
func (p *Process) onReport(r report, ok bool) {
	switch {
	case !ok:
		p.takeOver("lock-watchdog was killed")
	case r.Listens:
		p.listens = true
	case r.Typed != 0:
		p.onTyped(r.Typed)
	case r.Stopped != 0:
		p.onStop(r.Stopped)
	case r.Ended != nil:
		p.onEnd(*r.Ended)
	case r.Left > 0:
		p.onLeft(r.Left)
	case r.Done:
		p.watchdog.acknowledged()
	case r.Refused != 0:
		p.onRefusal(r.Refused, r.Denied)
	case r.Empty:
		p.empty, p.end.Late = true, r.Late
	}
}

// onEnd records the end of the command itself.
func (p *Process) onEnd(status unix.WaitStatus) {
	p.ended, p.end.Status = true, status
	p.inferTyped()
	p.Terminal.takeBack(p.pid)
	if status.Signaled() {
		p.Terminal.restore()
	}
}

// onRefusal reports processes that belong to another user.
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

// onEvent handles a change of one of our children: the watchdog, or the command after the watchdog
// is gone.
func (p *Process) onEvent(ev change, ok bool) {
	switch {
	case !ok:
		p.events, p.reaped = nil, true
	case ev.pid == p.watchdog.pid && ev.gone():
		p.reaped = true
	case ev.pid == p.watchdog.pid && ev.status.Stopped():
		p.watchdog.resume() // a stopped watchdog could not kill the command
	case ev.pid == p.pid && ev.gone():
		p.onEnd(ev.status)
	}
}

// takeOver supervises the command after the watchdog was killed. It kills all processes of the
// command, unless IgnoreLoss is set and nothing else has asked for its end. It returns when no process is
// left, or when the lease of a lost lock has expired and the remaining processes cannot be killed.
// why begins the message for the user.
//
// A debugger of the watchdog keeps it as a zombie, so this process may not be able to reap it.
func (p *Process) takeOver(why string) {
	p.reports = nil
	if p.end.Broken = !p.IgnoreLoss || p.killed || p.end.Capped || p.end.Cancelled; p.end.Broken {
		p.own.kill(killLimit)
		if p.pid != 0 {
			p.Say("%s; killing the command", why)
		}
	} else {
		for _, o := range p.watchdog.pending {
			p.order(o)
		}
	}
	p.watchdog.stopTimeout()
	var lost <-chan struct{}
	if !p.end.Lost {
		lost = p.Lock.Context().Done()
	}
	signals := p.Signals
	if p.pid == 0 {
		signals = nil // for the command that the next watchdog starts
	}
	again := time.NewTicker(killAgain)
	defer again.Stop()
	for p.denied = 0; !p.watchdogGone() || p.own.roots() > 0; {
		if p.end.Broken {
			p.own.kill(killLimit)
			if p.own.denied != p.denied {
				p.onRefusal(unix.SIGKILL, p.own.denied)
			}
		}
		if p.stuck() || p.ended && p.IgnoreOrphans && !p.end.Broken {
			break
		}
		select {
		case <-lost:
			lost, p.end.Lost = nil, true
			p.leaveLater()
		case <-p.maxOver:
			p.onMax()
		case <-p.cancelled:
			p.onCancel()
		case <-p.kill:
			p.kill = nil
			p.killAll()
		case <-p.leave:
			p.leave, p.over = nil, true
		case ev, ok := <-p.events:
			p.onEvent(ev, ok)
		case sig := <-signals:
			if p.noteSignal(sig); !p.end.Broken {
				p.own.signal(sig.(unix.Signal), false)
			}
		case <-again.C:
		}
	}
	p.awaitStatus()
	p.end.Broken = p.end.Broken || p.pid != 0 && !p.ended // its exit status is unknown, and must not count as success
	p.empty = !p.stuck()
}

// watchdogGone reports whether the watchdog has ended, so that its children are ours. If a debugger
// keeps this process from reaping it, its threads are looked up, for some time: the kernel may leave
// a thread out of a list while others end.
func (p *Process) watchdogGone() bool {
	if p.reaped || !finished(p.watchdog.pid) {
		p.gone = time.Time{}
		return p.reaped
	}
	if p.gone.IsZero() {
		p.gone = time.Now()
	}
	return time.Since(p.gone) > KillReserve
}

// awaitStatus waits for the status of a command that has become our child and has ended. There is
// none if the watchdog had reaped the command.
func (p *Process) awaitStatus() {
	for timeout := time.After(KillReserve); p.pid != 0 && !p.ended; {
		select {
		case ev, ok := <-p.events:
			p.onEvent(ev, ok)
		case <-timeout:
			return
		}
	}
}

// onStop handles a stop of the command. If the command was stopped because it needs the terminal,
// onStop gives it the terminal. If the terminal stopped the command, onStop also stops this
// process.
func (p *Process) onStop(sig unix.Signal) {
	switch sig {
	case unix.SIGTTIN, unix.SIGTTOU:
		if p.Terminal.lend(p.pid) {
			p.watchdog.order(order{Listen: true, Signal: unix.SIGCONT})
			return
		}
	case unix.SIGSTOP:
		if !p.Terminal.belongsTo(p.pid) {
			return // only the command was stopped, not by the terminal; it keeps the lock
		}
	}
	if p.Terminal == nil || p.ended {
		return
	}
	p.Terminal.takeBack(p.pid)
	StopOwnGroup(p.Signals)
	p.resume()
}

// onSignal passes a signal on to the command.
func (p *Process) onSignal(sig os.Signal) {
	if sig == unix.SIGCONT {
		p.resume()
		return
	}
	p.noteSignal(sig)
	p.watchdog.order(order{Signal: sig.(unix.Signal)})
	p.endLeft()
	if sig == unix.SIGTERM || sig == unix.SIGINT { // others may ask for something else, such as a reload
		p.watchdog.startTimeout(orderLimit)
	}
}

// noteSignal records a signal that asks the command to end.
func (p *Process) noteSignal(sig os.Signal) {
	if !slices.Contains(EndSignals, sig) {
		return
	}
	p.end.Passed = sig.(unix.Signal)
	p.asked = p.asked || sig != unix.SIGHUP
	p.hungUp = p.hungUp || sig == unix.SIGHUP
}

// resume continues the command after a stop, or kills it if the lock is lost. While this process
// was stopped, nothing renewed the lock.
func (p *Process) resume() {
	if err := p.Lock.Err(); err != nil && !p.IgnoreLoss {
		p.killAll()
		if !p.end.Lost { // otherwise it has been reported
			p.end.Lost = true
			p.leaveLater()
			p.lastLater()
			p.Say("%v; killing the command", err)
		}
		return
	}
	p.Terminal.giveAgain(p.pid)
	p.watchdog.order(order{Signal: unix.SIGCONT})
}

// onTick sends the deadline to the watchdog and finds foreign children, which do not belong to the
// command. This process can have foreign children if it had some before the command started, or if
// it is the first process of a container. All processes of the command are below the watchdog, so a
// child that exists at two ticks is foreign.
func (p *Process) onTick() {
	if !p.IgnoreLoss && !p.end.Lost { // after a loss the deadline does not change
		p.watchdog.inform(p.Lock.Deadline())
	}
	if len(p.own.foreign) == 0 && os.Getpid() != 1 {
		return
	}
	now := set(ownChildren())
	delete(now, p.watchdog.pid)
	for pid := range p.seen {
		if now[pid] {
			p.own.foreign[pid] = true
		}
	}
	for pid := range p.own.foreign {
		if !now[pid] {
			delete(p.own.foreign, pid) // the kernel may reuse its number
		}
	}
	p.seen = now
}

// Close waits until the watchdog has ended and has been reaped, two seconds at most. Without that,
// the next command would count the watchdog as a foreign child, and an init process that does not
// reap orphans would keep it as a zombie. Call Close after the release of the lock, so that waiters
// get the lock earlier.
func (p *Process) Close() {
	defer p.watchdog.conn.Close()
	defer close(p.done)
	if p.stuck() {
		return // the watchdog keeps trying
	}
	timeout, killed := time.After(patience), false
	for !p.reaped {
		select {
		case ev, ok := <-p.events:
			p.onEvent(ev, ok)
		case <-timeout:
			if p.watchdog.kill(); killed {
				return
			}
			killed, timeout = true, time.After(patience)
		}
	}
}

// wasAsked returns End.Asked. A signal from the terminal, which reaches only the foreground process
// group, is not passed on by this process, so wasAsked also checks which signal ended the command.
func (p *Process) wasAsked() bool {
	if p.asked || !p.end.Status.Signaled() {
		return p.asked
	}
	switch p.end.Status.Signal() {
	case unix.SIGHUP:
		return p.hungUp || p.Terminal != nil
	case unix.SIGINT, unix.SIGQUIT:
		return p.Terminal != nil
	}
	return false
}
