package fencelock

import (
	"time"

	"github.com/fencelock/fencelock/internal/clock"
	"github.com/fencelock/fencelock/internal/hold"
)

// phase is what has become of a Lock. It changes along these arrows only:
//
//	requested ──▶ held ──▶ stopping ──▶ expired ──▶ returned
//	                │          │
//	                ├──────────┼──▶ released
//	                ├──────────┴──▶ detached
//	                └──▶ lost
//
// After a pause of the process held may become expired at once. Package hold decides when a lock
// leaves held and stopping.
type phase uint8

const (
	phaseRequested phase = iota // the engine has not granted the lock, or the grant is unconfirmed
	phaseHeld
	phaseStopping // the maximum hold is reached; the lock is renewed until the grace is over
	phaseReleased // Release ended the hold
	phaseDetached // Detach ended the hold
	phaseLost     // the lease ran out, or the engine reported that it does not hold the lock
	phaseExpired  // the maximum hold and the grace are over; giveUp releases the lock
	phaseReturned // giveUp has released the lock and may call HoldEnd
)

// stopped reports whether the contexts of the lock have ended.
func (p phase) stopped() bool { return p >= phaseStopping }

// over reports whether the hold has ended.
func (p phase) over() bool { return p > phaseStopping }

// next returns the phase that follows p after a step of h. ending is the phase that Release or
// Detach asked for.
func (p phase) next(h *hold.Hold, kind hold.Kind, ending phase) phase {
	stopping := h.Stopping()
	switch {
	case p.over():
		return p
	case !h.Ended() && stopping:
		return phaseStopping
	case !h.Ended():
		return p
	case kind == hold.Released && (stopping || h.Cause() == nil):
		return ending
	case stopping:
		return phaseExpired // even if the lease ran out first: the contexts have ended long ago
	}
	return phaseLost
}

// begin starts the hold and its renewals.
func (l *Lock) begin(h hold.Hold, maxHold time.Duration, now hold.Instant) {
	if maxHold > 0 {
		h.Limit(maxHold, now)
	}
	l.locker.renewer.enter(l) // before the hold can end, which removes it
	l.mu.Lock()
	early := l.lost
	l.phase, l.hold, l.maxHold, l.began, l.lost = phaseHeld, h, maxHold, now.Mono, nil
	l.mu.Unlock()
	if early != nil {
		l.onEngineLoss(early.Reason)
		return
	}
	l.locker.renewer.begin(l, now)
}

// onEngineLoss is the callback for an engine that detects the loss of the lock by itself.
func (l *Lock) onEngineLoss(cause error) {
	if cause == nil {
		cause = ErrNotHeld
	}
	l.mu.Lock()
	early := l.phase == phaseRequested
	if early {
		l.lost = &LostError{Reason: cause}
	}
	l.mu.Unlock()
	if !early {
		l.feed(hold.Event{Kind: hold.Gone, Cause: cause}, clock.Now())
	}
}

// announce calls HoldStart. It comes after AcquireEnd, and a loss that came earlier is reported
// after it, so that HoldEnd is never the first.
func (l *Lock) announce() {
	parent := start(l.parent, l.locker.renewer.cfg.Tracer.HoldStart, l.traced())
	l.mu.Lock()
	l.parent, l.announced = parent, true
	phase := l.phase
	l.mu.Unlock()
	switch phase {
	case phaseReturned:
		l.holdEnd()
	case phaseLost:
		l.reportLoss()
	}
}

// close records that Release or Detach was called, which end the hold in the phase ending. If one of
// them was called before, close returns ErrNotHeld.
func (l *Lock) close(ending phase) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending != 0 {
		return l.notHeld(l.ending)
	}
	l.ending = ending
	return nil
}

// feed passes an event to the state machine and changes the phase. If the hold or its maximum ends,
// feed cancels the contexts first and then does the rest. It returns what the renewer has to do, and
// whether the lock was held until now.
func (l *Lock) feed(ev hold.Event, now hold.Instant) (act hold.Action, wasHeld bool) {
	l.mu.Lock()
	before := l.phase
	act = l.hold.Step(ev, now)
	l.phase = before.next(&l.hold, ev.Kind, l.ending)
	if l.phase == before {
		l.mu.Unlock()
		return act, !before.over()
	}
	l.held = now.Mono - l.began
	if act.Stop {
		l.capped = &MaxHoldError{Name: l.lease.Name, Token: l.lease.Token, Max: l.maxHold}
	}
	switch l.phase {
	case phaseLost:
		l.lost = l.lostError(l.hold.Cause(), now)
	case phaseExpired:
		l.gaveUp = make(chan struct{})
	}
	after, announced, renewing := l.phase, l.announced, l.hold.Renewing()
	cancels, cause := l.cancels(), l.cause()
	l.mu.Unlock()
	for _, cancel := range cancels {
		cancel(cause)
	}
	if after.over() {
		l.locker.renewer.remove(l, renewing)
	}
	switch {
	case after == phaseExpired:
		go l.giveUp() // ends at the release timeout at the latest
	case after == phaseLost && announced: // otherwise announce reports it
		l.reportLoss()
	}
	return act, true
}

// lostError returns the error of a loss. The caller holds mu.
func (l *Lock) lostError(reason error, now hold.Instant) *LostError {
	return &LostError{Name: l.lease.Name, Token: l.lease.Token, Deadline: l.endsAt(time.Unix(0, int64(now.Wall)), now), Reason: reason}
}

// returned ends the release of an expired lock. Whichever comes last of this and announce calls
// HoldEnd.
func (l *Lock) returned() {
	l.mu.Lock()
	l.phase = phaseReturned
	announced := l.announced
	l.mu.Unlock()
	if announced {
		l.holdEnd()
	}
}

// reportLoss reports the loss of the lock to the logger and the tracer.
func (l *Lock) reportLoss() {
	l.mu.Lock()
	loss, held := l.lost, l.held
	l.mu.Unlock()
	l.locker.renewer.notifier.lost(l.values(), l.traced(), loss, held)
}

// state returns the phase, and why the lock's context ended without a release: a *LostError, a
// *MaxHoldError, or nil.
func (l *Lock) state() (phase, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil && l.capped == nil {
		return l.phase, nil
	}
	return l.phase, l.cause()
}

// failure returns the error of state.
func (l *Lock) failure() error {
	_, err := l.state()
	return err
}
