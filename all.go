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

// DoAll is [Locker.Do] for several names: it runs fn while holding all of them;
// see [Locker.AcquireAll]. The context given to fn ends when any of the locks is
// lost, and [HeldFor] finds each.
func (l *Locker) DoAll(ctx context.Context, names []string, fn func(ctx context.Context) error) error {
	return l.doAll(ctx, names, true, fn)
}

// TryDoAll is DoAll without waiting: if a name is held, or others wait for it, it returns
// the *HeldError of that name and fn does not run; see [Locker.TryAcquireAll].
func (l *Locker) TryDoAll(ctx context.Context, names []string, fn func(ctx context.Context) error) error {
	return l.doAll(ctx, names, false, fn)
}

func (l *Locker) doAll(ctx context.Context, names []string, wait bool, fn func(ctx context.Context) error) error {
	set, err := l.acquireAll(ctx, names, wait)
	if err != nil {
		return err
	}
	set.bound = true
	defer func() { _ = set.Release() }() // for a panic in fn; otherwise the second, and harmless
	err = fn(set.Context())
	released := set.Release()
	if lost := set.lost(); lost != nil {
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

// AcquireAll waits until it holds all the names, no longer than Options.Wait and
// ctx allow, and returns them as one set, which the caller must Release; or it
// returns an error, as [Locker.Acquire] does, and gives back what it has. If the
// engine does not answer that once the time is over, it is asked in the background
// for Config.ReleaseTimeout more. A name given twice counts once.
//
// It takes one name after the other in the order of their bytes, which is the same
// for everybody: users of AcquireAll cannot deadlock one another. Code that holds a
// lock already when it calls AcquireAll has no such promise. While a set waits for
// one name it holds those before it.
//
// Options.MinHold is ErrInvalid for several names: a set that got only some of them
// would close these to everybody.
func (l *Locker) AcquireAll(ctx context.Context, names ...string) (*LockSet, error) {
	return l.acquireAll(ctx, names, true)
}

// TryAcquireAll is AcquireAll without waiting: if a name is held, or others wait
// for it, it returns the *HeldError of that name and holds nothing. Until then it
// holds the names before that one, as others see.
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
	each.opts.Wait = 0 // it is the set's
	a := &acquisition{Locker: &each, names: names, wait: wait, told: map[string]*report{}}
	a.set = &LockSet{parent: ctx}
	done := false
	defer unless(&done, func() { _ = a.set.Release() })
	err := a.insist(limited)
	if err != nil {
		l.renewer.giveBack(limited, a.set.Release)
	}
	for _, name := range names {
		a.told[name].end(nil, err) // those that have ended say no more
	}
	done = true
	if err != nil {
		return nil, err
	}
	return a.set, nil
}

// acquisition is one AcquireAll under way. One goroutine uses it.
type acquisition struct {
	*Locker
	names []string           // in order
	wait  bool               // for its turn
	set   *LockSet           // what it has so far
	told  map[string]*report // of those who asked for each name; nil if nobody is told
	heard driver.Waited
}

// insist takes all names, or returns an error, and the set may hold some.
func (a *acquisition) insist(ctx context.Context) error {
	for pause := retry.NewBackoff(firstPause, lastPause); ; pause.Wait(ctx) {
		err := a.hear(ctx, a.take(ctx))
		if err == nil {
			return nil
		}
		again := a.set.lost() != nil || errors.Is(err, errUnconfirmed)
		if !a.wait || !again || final(err) || ctx.Err() != nil {
			return a.failure(ctx, err)
		}
		a.renewer.giveBack(ctx, a.set.Release) // as far as there is something to release; all begins again
		a.set = &LockSet{parent: a.set.parent}
	}
}

// hear returns err, and keeps who is in the way, or that the engine does not answer,
// for the case that the time runs out elsewhere.
func (a *acquisition) hear(ctx context.Context, err error) error {
	if held, ok := errors.AsType[*HeldError](err); ok {
		a.heard.Held(held)
	} else if errors.Is(err, errUnconfirmed) {
		a.heard.Unavailable(ctx, err)
	}
	return err
}

// failure is the error of a set that was not acquired.
func (a *acquisition) failure(ctx context.Context, err error) error {
	if lost := a.set.lost(); lost != nil && !a.wait {
		return lost
	}
	if !a.wait && errors.Is(err, ErrHeld) {
		return err
	}
	return driver.OneLine(a.heard.Ended(ctx, err))
}

// report tells the tracer that a name is asked for, unless it knows.
func (a *acquisition) report(ctx context.Context, name string) *report {
	if r := a.told[name]; r != nil && !r.over {
		return r
	}
	a.told[name] = newReport(ctx, &a.cfg, a.request(ctx, name, a.wait))
	return a.told[name]
}

// checkAll returns an ErrInvalid that says what is wrong with a set of names.
func (l *Locker) checkAll(names []string) error {
	switch {
	case len(names) == 0:
		return fmt.Errorf("%w: no names", ErrInvalid)
	case len(names) > 1 && l.opts.MinHold > 0:
		return fmt.Errorf("%w: a minimum hold is for one name, not for %d at once", ErrInvalid, len(names))
	}
	for _, name := range names {
		if err := driver.CheckName(name); err != nil {
			return fmt.Errorf("%w (%q)", err, name)
		}
	}
	return l.cfg.check(l.opts, l.traits.Leased)
}

// take takes the names one after the other. It stops as soon as a lock that
// it has is lost.
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
