package fencelock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/clock"
	"github.com/fencelock/fencelock/internal/heldlock"
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

	mu       sync.Mutex // guards hold, most, began, held, failed, told, released, detached, returned, givingUp, ctx, cancel, joined
	hold     hold.Hold
	most     time.Duration   // the maximum hold; 0 means none
	began    time.Duration   // when the hold began, by the monotonic clock; zero before
	held     time.Duration   // how long the hold lasted, once it has ended
	failed   error           // the *LostError or *MaxHoldError that ended the context; before the hold began, a loss that the engine reported
	told     bool            // AcquireEnd was called: HoldEnd may follow
	released bool            // Release or Detach was called
	detached bool            // Detach was called
	returned bool            // the lock was released because of its maximum hold, and HoldEnd may be called
	givingUp chan struct{}   // closed when the lock was released because of its maximum hold; nil before that begins
	ctx      context.Context // created on first use
	cancel   context.CancelCauseFunc
	joined   map[context.Context]context.CancelCauseFunc // contexts of ContextWith that have not ended

	wake    schedule.Entry[*Lock] // guarded by renewer.mu
	renewal *renewal              // guarded by batcher.mu; nil before the first renewal
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

// values returns a context that never ends and has the lock's values, for logs and traces.
func (l *Lock) values() context.Context { return (*lockValues)(l) }

// begin starts the hold and its renewals.
func (l *Lock) begin(h hold.Hold, most time.Duration, now hold.Instant) {
	if most > 0 {
		h.Limit(most, now)
	}
	l.locker.renewer.enter(l) // before the hold can end, which removes it
	l.mu.Lock()
	reported := l.failed
	l.began, l.hold, l.most, l.failed = now.Mono, h, most, nil
	l.mu.Unlock()
	if reported != nil {
		l.onEngineLoss(reported)
		return
	}
	l.locker.renewer.begin(l, now)
}

// limit begins the maximum hold of a lock that is held already.
func (l *Lock) limit(most time.Duration, now hold.Instant) {
	l.mu.Lock()
	l.setMost(most, now)
	l.mu.Unlock()
	l.locker.renewer.begin(l, now) // the next step may be due earlier
}

// setMost sets the maximum hold. The caller holds mu.
func (l *Lock) setMost(most time.Duration, now hold.Instant) {
	l.most = most
	l.hold.Limit(most, now)
}

// beforeMost returns at, or when the maximum hold or its grace is over if that is earlier. Either may
// have begun after at was computed.
func (l *Lock) beforeMost(at time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hold.Before(at)
}

// announce calls HoldStart. It comes after AcquireEnd, and a loss that came earlier is reported
// after it, so that HoldEnd is never the first.
func (l *Lock) announce() {
	parent := start(l.parent, l.locker.renewer.cfg.Tracer.HoldStart, l.traced())
	l.mu.Lock()
	l.parent, l.told = parent, true
	loss, held, returned := l.loss(), l.held, l.returned
	l.mu.Unlock()
	switch {
	case returned:
		l.holdEnd(false)
	case loss != nil:
		l.locker.renewer.notifier.lost(l.values(), l.traced(), loss, held)
	}
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

// Context returns a context that ends with the hold. If the lock is lost, it ends with a cause that
// is ErrLost, at the latest at the deadline minus the grace. If Options.MaxHold is reached, it ends
// with a cause that is ErrMaxHold. If the lock is released, its cause is context.Canceled.
func (l *Lock) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx != nil {
		return l.ctx
	}
	l.ctx, l.cancel = context.WithCancelCause(l.values())
	if l.over() {
		l.cancel(l.cause())
	}
	return l.ctx
}

// ContextWith returns a context with the values of ctx that ends with the hold, as [Lock.Context]
// does, or with ctx. Its cause is that of whichever ends first. [TokenFrom] finds the lock in it.
// Use it for work that has a context of its own, such as one of many requests that are served under
// one lock.
func (l *Lock) ContextWith(ctx context.Context) context.Context {
	out, cancel := context.WithCancelCause(boundContext{ctx, l})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over() {
		cancel(l.cause())
		return out
	}
	if l.joined == nil {
		l.joined = map[context.Context]context.CancelCauseFunc{}
	}
	l.joined[out] = cancel
	context.AfterFunc(out, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.joined, out)
	})
	return out
}

// over reports whether the lock's context has ended. The caller holds mu.
func (l *Lock) over() bool { return l.hold.Ended() || l.hold.Stopping() }

// cause returns the cause of the end of the lock's context. The caller holds mu.
func (l *Lock) cause() error {
	if l.failed != nil {
		return l.failed
	}
	return context.Canceled
}

// loss returns the error of a lost lock, or nil. The caller holds mu.
func (l *Lock) loss() *LostError {
	loss, _ := l.failed.(*LostError) //nolint:errorlint // failed is never wrapped
	return loss
}

// Err returns nil while the lock is held, a *LostError after a loss, a *MaxHoldError once
// Options.MaxHold is reached, and ErrNotHeld after Release or Detach.
// It does no I/O and is exact even after a pause of the process. Call it right before a step that
// must not run without the lock.
func (l *Lock) Err() error {
	l.feed(hold.Event{Kind: hold.Look}, clock.Now())
	if err := l.failure(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold.Ended() {
		return l.notHeld()
	}
	return nil
}

// notHeld returns the error of a lock that was released or detached. The caller holds mu.
func (l *Lock) notHeld() error {
	how := "released"
	if l.detached {
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
	over := l.over()
	if !over {
		l.setMost(d, now)
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
	return l.hold.Left(now), l.hold.Terms().Leased && !l.hold.Ended()
}

// margin returns the part of the lease that is left. It returns false without a lease and after the
// end of the hold.
func (l *Lock) margin(now hold.Instant) (float64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hold.Part(now), l.hold.Terms().Leased && !l.hold.Ended()
}

// failure returns why the lock's context ended without a release: a *LostError, a *MaxHoldError, or
// nil.
func (l *Lock) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.began == 0 {
		return nil
	}
	return l.failed
}

// lostError returns the error of a loss. The caller holds mu.
func (l *Lock) lostError(reason error, now hold.Instant) *LostError {
	return &LostError{Name: l.lease.Name, Token: l.lease.Token, Deadline: l.endsAt(time.Unix(0, int64(now.Wall)), now), Reason: reason}
}

// onEngineLoss is the callback for an engine that detects the loss of the lock by itself.
func (l *Lock) onEngineLoss(cause error) {
	if cause == nil {
		cause = ErrNotHeld
	}
	l.mu.Lock()
	if l.began == 0 {
		l.failed = cause
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	l.feed(hold.Event{Kind: hold.Gone, Cause: cause}, clock.Now())
}

// feed passes an event to the state machine. If the hold or its maximum ends, feed cancels the
// contexts first and then does the rest. It returns what the renewer has to do, and whether the lock
// was held until now.
func (l *Lock) feed(ev hold.Event, now hold.Instant) (act hold.Action, stood bool) {
	l.mu.Lock()
	stood = !l.hold.Ended()
	act = l.hold.Step(ev, now)
	ended := stood && l.hold.Ended()
	if !ended && !act.Stop {
		l.mu.Unlock()
		return act, stood
	}
	if act.Stop {
		l.failed = &MaxHoldError{Name: l.lease.Name, Token: l.lease.Token, Max: l.most}
	} else if cause := l.hold.Cause(); cause != nil && l.failed == nil {
		l.failed = l.lostError(cause, now)
	}
	l.held = now.Mono - l.began
	if ended && l.hold.Stopping() && ev.Kind != hold.Released {
		l.givingUp = make(chan struct{})
	}
	cancels, cause := l.cancels(), l.cause()
	l.mu.Unlock()
	for _, cancel := range cancels {
		cancel(cause)
	}
	if ended {
		l.ended()
	}
	return act, stood
}

// ended does what follows the end of a hold, whose contexts have ended.
func (l *Lock) ended() {
	l.mu.Lock()
	loss, capped, told, renewing, held := l.loss(), l.givingUp != nil, l.told, l.hold.Renewing(), l.held
	l.mu.Unlock()
	l.locker.renewer.remove(l, renewing)
	switch {
	case capped:
		go l.giveUp() // ends at the release timeout at the latest
	case loss != nil && told:
		l.locker.renewer.notifier.lost(l.values(), l.traced(), loss, held)
	}
}

// cancels returns the cancel functions of the lock's contexts. The caller holds mu.
func (l *Lock) cancels() []context.CancelCauseFunc {
	all := slices.Collect(maps.Values(l.joined))
	if l.cancel != nil {
		all = append(all, l.cancel)
	}
	return all
}

// age returns how long the lock has been held.
func (l *Lock) age(now time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.began == 0 { // it is just beginning
		return 0
	}
	return now - l.began
}

// lockValues is a context that never ends and has the lock and the values of the caller's context.
type lockValues Lock

func (*lockValues) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (*lockValues) Done() <-chan struct{}                   { return nil }
func (*lockValues) Err() error                              { return nil }

func (v *lockValues) Value(key any) any {
	if l := (*Lock)(v).named(key); l != nil {
		return l
	}
	return v.parent.Value(key)
}

// named returns l if key, given to a context's Value, asks for it, and nil otherwise.
func (l *Lock) named(key any) *Lock {
	switch key := key.(type) {
	case heldlock.Inner:
		return l
	case heldlock.Named:
		if l.lease.Name == string(key) {
			return l
		}
	}
	return nil
}

// boundContext is a caller's context with a lock as a value.
type boundContext struct {
	context.Context
	lock *Lock
}

func (b boundContext) Value(key any) any {
	if l := b.lock.named(key); l != nil {
		return l
	}
	return b.Context.Value(key)
}

// tracedContext ends with the first context and has the values of the second.
type tracedContext struct {
	context.Context
	values context.Context
}

func (c tracedContext) Value(key any) any { return c.values.Value(key) }
