//go:build unix

package supervise

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// onLoss sends Signal to all processes and schedules the kill: KillAfter later, but before the
// lease expires.
func (p *Process) onLoss() {
	if p.end.Lost { // resume has noticed it, and killed them
		return
	}
	p.end.Lost = true
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
	p.lastLater()
	p.stop(wait, cause.Error())
}

// onMax ends a command that has run for as long as it may. The lock is renewed until no process of
// the command is left.
func (p *Process) onMax() {
	if p.end.Lost || p.end.Broken {
		return
	}
	p.end.Capped = true
	p.stop(p.KillAfter, fmt.Sprintf("the command has run for its maximum of %v", p.MaxRun))
}

// onCancel ends a command that is not wanted any more. The lock is renewed until no process of the
// command is left.
func (p *Process) onCancel() {
	if p.cancelled = nil; p.end.Lost || p.end.Broken {
		return
	}
	p.end.Cancelled = true
	p.stop(p.KillAfter, context.Cause(p.Cancel).Error())
}

// stop sends Signal to all processes of the command and schedules the kill. why begins the message
// for the user.
func (p *Process) stop(wait time.Duration, why string) {
	if wait <= 0 || p.Signal == unix.SIGKILL {
		p.killAll()
		p.Say("%s; killing the command", why)
		return
	}
	p.order(order{Signal: p.Signal, All: true})
	p.order(order{Signal: unix.SIGCONT, All: true}) // a stopped process does not handle signals
	p.watchdog.startTimeout(wait / 2)               // the rest is for the kill by this process, on a busy machine
	p.kill = time.After(wait)
	to := "the command"
	if p.ended {
		to = "its processes"
	}
	p.Say("%s; sending %s to %s, SIGKILL in %v", why, unix.SignalName(p.Signal), to, wait.Round(time.Millisecond))
}

// leaveLater schedules when to stop waiting for processes that cannot be killed: when the lease of
// the lost lock has expired, or without a lease, some time after the kill.
func (p *Process) leaveLater() {
	wait := p.KillAfter + patience
	if deadline := p.Lock.Deadline(); !deadline.IsZero() {
		wait = time.Until(deadline)
	}
	p.leave = time.After(wait)
}

// lastMoment is how long the watchdog has to kill: until half of KillReserve before the deadline. If
// that has passed, this process was frozen, and the watchdog gets a moment to report what it has done.
func lastMoment(deadline time.Time) time.Duration {
	return max(time.Until(deadline)-KillReserve/2, KillReserve/2)
}

// lastLater schedules when to take over from a watchdog that has not ended the command: shortly
// before the lease of the lost lock expires.
func (p *Process) lastLater() {
	if deadline := p.Lock.Deadline(); !deadline.IsZero() {
		p.last = time.After(lastMoment(deadline))
	}
}

// replace takes over from a watchdog that does not carry out its orders.
func (p *Process) replace() {
	p.watchdog.kill()
	p.takeOver("lock-watchdog does not respond")
}

// killAll orders the watchdog to kill all processes.
func (p *Process) killAll() {
	p.killed = true
	p.order(order{Kill: true})
	limit := orderLimit
	if deadline := p.Lock.Deadline(); !deadline.IsZero() {
		limit = min(limit, lastMoment(deadline))
	}
	p.watchdog.startTimeout(limit)
}
