package fencelock

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fencelock/fencelock/internal/heldlock"
)

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
	if l.phase.stopped() {
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
	if l.phase.stopped() {
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

// cause returns the cause with which the lock's contexts end. The caller holds mu.
func (l *Lock) cause() error {
	switch {
	case l.lost != nil:
		return l.lost
	case l.capped != nil:
		return l.capped
	}
	return context.Canceled
}

// cancels returns the cancel functions of the lock's contexts. The caller holds mu.
func (l *Lock) cancels() []context.CancelCauseFunc {
	all := slices.Collect(maps.Values(l.joined))
	if l.cancel != nil {
		all = append(all, l.cancel)
	}
	return all
}

// values returns a context that never ends and has the lock's values, for logs and traces.
func (l *Lock) values() context.Context { return (*lockValues)(l) }

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
