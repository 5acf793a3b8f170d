package fencelock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/clock"
	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/schedule"
)

// Lock is one acquisition. It is held from the moment it is returned until it is released or lost.
// It is safe for concurrent use.
type Lock struct {
	locker *Locker
	lease  driver.Lease
	floor  int64
	parent context.Context // the caller's context, or the one that HoldStart returned

	mu        sync.Mutex // guards the fields below, up to joined
	hold      hold.Hold
	phase     phase           // what has become of the hold
	ending    phase           // phaseReleased or phaseDetached once Release or Detach was called, or 0
	announced bool            // AcquireEnd and HoldStart were called: HoldEnd may follow
	lost      *LostError      // in phaseLost; in phaseRequested, a loss that the engine reported, of which only Reason is set
	capped    *MaxHoldError   // once the maximum hold is reached
	gaveUp    chan struct{}   // from phaseExpired on; closed when giveUp has released the lock
	maxHold   time.Duration   // 0 means none
	began     time.Duration   // when the hold began, by the monotonic clock
	held      time.Duration   // how long the hold lasted, once its contexts have ended
	ctx       context.Context // created on first use
	cancel    context.CancelCauseFunc
	joined    map[context.Context]context.CancelCauseFunc // contexts of ContextWith that have not ended

	wake    schedule.Entry[*Lock] // guarded by renewer.mu
	renewal *renewal              // guarded by renewalBatcher.mu; nil before the first renewal
}

// newLock returns a lock that is not yet held, for a request about to be sent. It is made before
// the request because the engine may report a loss before it returns the grant.
func newLock(l *Locker, parent context.Context, req driver.Request) *Lock {
	lock := &Lock{
		locker: l,
		lease:  driver.Lease{Name: req.Name, Mode: req.Mode, TTL: req.TTL},
		parent: parent,
		hold: hold.New(hold.Terms{
			TTL:    req.TTL,
			Margin: l.cfg.margin(req.TTL),
			Grace:  l.opts.Grace,
			Leased: l.traits.Leased,
		}, hold.Instant{}, 0),
	}
	lock.wake.Item = lock
	return lock
}

// limit begins the maximum hold of a lock that is held already.
func (l *Lock) limit(d time.Duration, now hold.Instant) {
	l.mu.Lock()
	l.setMaximum(d, now)
	l.mu.Unlock()
	l.locker.renewer.begin(l, now) // the next step may be due earlier
}

// setMaximum sets the maximum hold. The caller holds mu.
func (l *Lock) setMaximum(d time.Duration, now hold.Instant) {
	l.maxHold = d
	l.hold.Limit(d, now)
}

// beforeMaximum returns at, or when the maximum hold or its grace is over if that is earlier.
// Either may have begun after at was computed.
func (l *Lock) beforeMaximum(at time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hold.Before(at)
}

// traced returns l in the form that tracers get.
func (l *Lock) traced() TraceLock {
	return TraceLock{Name: l.lease.Name, Mode: l.lease.Mode, Token: l.lease.Token, Kind: l.locker.kind(), Engine: l.locker.renewer.engineName}
}

// Name returns the name of the lock.
func (l *Lock) Name() string { return l.lease.Name }

// Owner returns the ID of this acquisition. No other acquisition has the same.
func (l *Lock) Owner() string { return l.lease.Owner }

// Token returns the fencing token. It is greater than that of every earlier acquisition of this
// name, and does not change while the lock is held.
func (l *Lock) Token() int64 { return l.lease.Token }

// Floor returns the lowest token that is still valid: the lowest among all holders of the name when
// this lock was granted. For an exclusive lock it equals Token. A guard of a shared resource
// refuses tokens below it.
func (l *Lock) Floor() int64 { return l.floor }

// Err returns nil while the lock is held, a *LostError after a loss, a *MaxHoldError once
// Options.MaxHold is reached, and ErrNotHeld after Release or Detach.
// It does no I/O and is exact even after a pause of the process. Call it right before a step that
// must not run without the lock.
func (l *Lock) Err() error {
	l.feed(hold.Event{Kind: hold.Look}, clock.Now())
	phase, err := l.state()
	if err == nil && phase.over() {
		return l.notHeld(phase)
	}
	return err
}

// notHeld returns the error of a lock that was released or detached.
func (l *Lock) notHeld(ending phase) error {
	how := "released"
	if ending == phaseDetached {
		how = "detached"
	}
	return fmt.Errorf("%w: %q was %s", ErrNotHeld, l.lease.Name, how)
}

// SetMaxHold replaces Options.MaxHold for this lock, which is then held for at most d from now. 0
// means no maximum. Lists of holders continue to show the maximum of the acquisition. SetMaxHold
// does no I/O. If the lock is not held any more, or its maximum is reached, nothing changes, and
// SetMaxHold returns the error of [Lock.Err].
func (l *Lock) SetMaxHold(d time.Duration) error {
	if err := checkDuration(maximumHold, d); err != nil {
		return err
	}
	now := clock.Now()
	l.feed(hold.Event{Kind: hold.Look}, now)
	l.mu.Lock()
	over := l.phase.stopped()
	if !over {
		l.setMaximum(d, now)
	}
	l.mu.Unlock()
	if over {
		return l.Err()
	}
	l.locker.renewer.begin(l, now) // the next step may be due earlier
	return nil
}

// Deadline returns when the lock will be lost unless it is renewed. It moves with every renewal. It
// is zero on an engine without leases.
func (l *Lock) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := time.Now()
	return l.endsAt(at, clock.Of(at))
}

// endsAt returns when the lease ends, computed from at. now must be read at the same time or later:
// a pause between the two makes the result early, never late. The caller holds mu.
func (l *Lock) endsAt(at time.Time, now hold.Instant) time.Time {
	if !l.hold.Terms().Leased {
		return time.Time{}
	}
	return at.Add(l.hold.Left(now))
}

// left returns how long the lease lasts. It returns false without a lease and after the end of the
// hold.
func (l *Lock) left(now hold.Instant) (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hold.Left(now), l.hold.Terms().Leased && !l.phase.over()
}

// margin returns the part of the lease that is left. It returns false without a lease and after the
// end of the hold.
func (l *Lock) margin(now hold.Instant) (float64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hold.Part(now), l.hold.Terms().Leased && !l.phase.over()
}

// age returns how long the lock has been held.
func (l *Lock) age(now time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase == phaseRequested {
		return 0
	}
	return now - l.began
}
