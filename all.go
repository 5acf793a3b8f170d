package fencelock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// DoAll is [Locker.Do] for several names: it runs fn while it holds all of them; see
// [Locker.AcquireAll]. The context given to fn ends when any of the locks is lost. [HeldFor]
// returns each lock from it.
func (l *Locker) DoAll(ctx context.Context, names []string, fn func(ctx context.Context) error) error {
	return l.doAll(ctx, names, true, fn)
}

// TryDoAll is [Locker.DoAll] without waiting. If a name is held, or others are waiting for it,
// TryDoAll returns the *HeldError of that name and does not run fn; see [Locker.TryAcquireAll].
func (l *Locker) TryDoAll(ctx context.Context, names []string, fn func(ctx context.Context) error) error {
	return l.doAll(ctx, names, false, fn)
}

func (l *Locker) doAll(ctx context.Context, names []string, wait bool, fn func(ctx context.Context) error) error {
	set, err := l.acquireAll(ctx, names, wait)
	if err != nil {
		return err
	}
	set.bound = true
	defer func() { _ = set.Release() }() // for a panic in fn; otherwise a second call, which does nothing
	err = fn(set.Context())
	released := set.Release()
	if lost := set.failure(); lost != nil {
		return errors.Join(lost, err)
	}
	if errors.Is(released, ErrNotHeld) {
		return errors.Join(fmt.Errorf("%w: %w", ErrLost, released), err)
	}
	if released != nil {
		l.cfg.Logger.WarnContext(ctx, "release failed", "names", names, "error", released)
	}
	return err
}

// AcquireAll waits until it holds all names, at most as long as Options.Wait and ctx allow. It
// returns them as one set, which the caller must Release. If it fails, it releases the locks that
// it has acquired and returns the same errors as [Locker.Acquire]. If the engine does not confirm
// that release in time, AcquireAll returns and retries it in the background for up to
// Config.ReleaseTimeout. Duplicate names count once.
//
// AcquireAll acquires the names one after the other, in byte order. All callers use the same order,
// so calls of AcquireAll cannot deadlock one another. A caller that already holds another lock can
// still deadlock. While a set waits for one name, it holds the names that sort before it.
//
// Options.MaxHold counts from when the set has all names.
//
// Options.MinHold with several names is ErrInvalid: a set that acquired only some of them would
// block those for the whole minimum hold.
func (l *Locker) AcquireAll(ctx context.Context, names ...string) (*LockSet, error) {
	return l.acquireAll(ctx, names, true)
}

// TryAcquireAll is [Locker.AcquireAll] without waiting. If a name is held, or others are waiting
// for it, TryAcquireAll releases the names that it already has and returns the *HeldError of that
// name. Other processes may see the earlier names as held in the meantime.
func (l *Locker) TryAcquireAll(ctx context.Context, names ...string) (*LockSet, error) {
	return l.acquireAll(ctx, names, false)
}

func (l *Locker) acquireAll(ctx context.Context, names []string, wait bool) (*LockSet, error) {
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	if err := l.checkAll(names); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	limited := ctx
	if wait && l.opts.Wait > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, l.opts.Wait)
		defer cancel()
	}
	each := *l
	each.opts.Wait = 0 // the limit applies to the whole set
	a := &acquisition{Locker: &each, names: names, wait: wait, reports: map[string]*report{}}
	a.set = &LockSet{parent: ctx}
	done := false
	defer undoUnless(&done, func() { _ = a.set.Release() })
	err := a.run(limited)
	if err != nil {
		l.renewer.giveBack(limited, a.set.Release)
	}
	for _, name := range names {
		a.reports[name].end(nil, err) // does nothing if that report has ended
	}
	done = true
	if err != nil {
		return nil, err
	}
	if l.opts.MaxHold > 0 {
		a.set.limit(l.opts.MaxHold)
	}
	return a.set, nil
}

// acquisition is one call of AcquireAll in progress. It is used by one goroutine.
type acquisition struct {
	*Locker
	names   []string           // sorted
	wait    bool               // whether to wait
	set     *LockSet           // the locks acquired so far
	reports map[string]*report // the reports by name; nil if nobody traces
	last    driver.Waited
}

// run acquires all names, and starts over if a lock of the set was lost or a grant could not be
// confirmed. After an error the set may hold some locks.
func (a *acquisition) run(ctx context.Context) error {
	for pause := retry.NewBackoff(firstPause, lastPause); ; pause.Wait(ctx) {
		err := a.remember(ctx, a.take(ctx))
		if err == nil {
			return nil
		}
		again := a.set.failure() != nil || errors.Is(err, errUnconfirmed)
		if !a.wait || !again || final(err) || ctx.Err() != nil {
			return a.failure(ctx, err)
		}
		a.renewer.giveBack(ctx, a.set.Release) // release what the set has and start over
		a.set = &LockSet{parent: a.set.parent}
	}
}

// remember returns err. It remembers the current holder, or that the engine was unreachable, for the
// error to return if the wait ends elsewhere.
func (a *acquisition) remember(ctx context.Context, err error) error {
	if held, ok := errors.AsType[*HeldError](err); ok {
		a.last.Held(held)
	} else if errors.Is(err, errUnconfirmed) {
		a.last.Unavailable(ctx, err)
	}
	return err
}

// failure returns the error for a set that was not acquired.
func (a *acquisition) failure(ctx context.Context, err error) error {
	if lost := a.set.failure(); lost != nil && !a.wait {
		return lost
	}
	if !a.wait && errors.Is(err, ErrHeld) {
		return err
	}
	return driver.OneLine(a.last.Ended(ctx, err))
}

// report returns the report of a name, and starts one if there is none in progress.
func (a *acquisition) report(ctx context.Context, name string) *report {
	if r := a.reports[name]; r != nil && !r.over {
		return r
	}
	a.reports[name] = a.newReport(ctx, a.request(ctx, name, a.wait), false)
	return a.reports[name]
}

// checkAll returns an ErrInvalid that says what is wrong with a set of names, or nil.
func (l *Locker) checkAll(names []string) error {
	switch {
	case len(names) == 0:
		return fmt.Errorf("%w: no names", ErrInvalid)
	case len(names) > 1 && l.opts.MinHold > 0:
		return fmt.Errorf("%w: a minimum hold needs a single name, and this call has %d: leave MinHold zero", ErrInvalid, len(names))
	}
	for _, name := range names {
		if err := driver.CheckName(name); err != nil {
			return fmt.Errorf("%w (%q)", err, name)
		}
	}
	return l.cfg.check(l.opts, l.traits.Leased)
}

// take acquires the names one after the other. It stops as soon as a lock of the set is lost.
func (a *acquisition) take(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, name := range a.names {
		if err := ctx.Err(); err != nil {
			return cmp.Or(a.set.Err(), err)
		}
		one := &attempt{Locker: a.Locker, request: a.request(ctx, name, a.wait), report: a.report(ctx, name)}
		lock, err := one.run(ctx)
		if err != nil {
			return err
		}
		a.set.locks = append(a.set.locks, lock)
		context.AfterFunc(lock.Context(), func() { cancel(context.Cause(lock.Context())) })
	}
	return a.set.Err()
}
