package fencelock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fencelock/fencelock/driver"
)

// DoAll is [Locker.Do] for several names: it runs fn while holding all of them;
// see [Locker.AcquireAll]. The context given to fn ends when any of the locks is
// lost, and [TokenFor] finds the fencing token of each name in it.
func (l *Locker) DoAll(ctx context.Context, names []string, fn func(ctx context.Context) error) error {
	set, err := l.acquireAll(ctx, names, bound)
	if err != nil {
		return err
	}
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
		l.cfg.Logger.Warn("release failed", "names", names, "error", released)
	}
	return err
}

// AcquireAll waits until it holds all the names, no longer than Options.Wait and
// ctx allow, and returns them as one set, which the caller must Release; or it
// holds none of them and returns an error, as [Locker.Acquire] does. A name given
// twice counts once.
//
// Where the engine can (Redis, if the names share a slot; PostgreSQL; memory), free
// names are taken in one round trip. Otherwise, and when it must wait, it takes one
// name after the other in the order of their bytes, which is the same for everybody:
// users of AcquireAll cannot deadlock one another. Code that holds a lock already
// when it calls AcquireAll has no such promise. While a set waits for one name it
// holds those before it.
//
// Options.AtLeast is ErrInvalid for several names: a set that got only some of them
// would close these to everybody.
func (l *Locker) AcquireAll(ctx context.Context, names ...string) (*LockSet, error) {
	return l.acquireAll(ctx, names, waiting)
}

// TryAcquireAll is AcquireAll without waiting: if a name is held, or others wait
// for it, it returns the *HeldError of that name and holds nothing.
func (l *Locker) TryAcquireAll(ctx context.Context, names ...string) (*LockSet, error) {
	return l.acquireAll(ctx, names, trying)
}

func (l *Locker) acquireAll(ctx context.Context, names []string, how manner) (*LockSet, error) {
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	if err := l.checkAll(names); err != nil {
		return nil, err
	}
	limited := ctx
	if how != trying && l.opts.Wait > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, l.opts.Wait)
		defer cancel()
	}
	for {
		set := &LockSet{parent: ctx, bound: how == bound}
		err := l.takeAll(limited, set, names)
		if how != trying && errors.Is(err, ErrHeld) || errors.Is(err, ErrUnsupported) {
			err = l.takeEach(limited, set, names, how)
		}
		if err == nil {
			return set, nil
		}
		lost := set.lost() != nil || errors.Is(err, ErrNotHeld)
		_ = set.Release() // what cannot be released is logged, and ends by itself
		if how == trying || !lost || limited.Err() != nil {
			return nil, err
		}
	}
}

// checkAll returns an ErrInvalid that says what is wrong with a set of names.
func (l *Locker) checkAll(names []string) error {
	switch {
	case len(names) == 0:
		return fmt.Errorf("%w: no names", ErrInvalid)
	case len(names) > 1 && l.opts.AtLeast > 0:
		return fmt.Errorf("%w: a minimum hold is for one name, not for %d at once", ErrInvalid, len(names))
	}
	for _, name := range names {
		if err := driver.CheckName(name); err != nil {
			return fmt.Errorf("%w (%q)", err, name)
		}
	}
	return l.check(l.opts)
}

// takeAll takes the names in one step, without waiting, and ErrUnsupported if the
// engine cannot.
func (l *Locker) takeAll(ctx context.Context, set *LockSet, names []string) (err error) {
	engine, ok := l.engine.(driver.AllAcquirer)
	if !ok || len(names) == 1 {
		return l.unsupported("take several names at once")
	}
	ctx, cancel := context.WithTimeout(ctx, l.opts.TTL)
	defer cancel()
	reqs, locks := l.requestAll(set, names)
	if !l.silent(ctx) {
		for i := range reqs {
			var ended func(*Lock, error)
			ctx, ended = l.told(ctx, &reqs[i])
			defer func() { ended(locks[i], err) }()
		}
	}
	before := instant()
	grants, err := engine.AcquireAll(ctx, reqs)
	if err == nil && len(grants) != len(reqs) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, errShortAnswer)
	}
	if err != nil {
		return err
	}
	var errs []error
	for i, lock := range locks {
		if err := l.adopt(lock, grants[i], before); err != nil {
			errs = append(errs, err)
			continue
		}
		set.locks = append(set.locks, lock)
	}
	return errors.Join(errs...)
}

// requestAll returns the requests of a set, which do not wait, and their locks.
func (l *Locker) requestAll(set *LockSet, names []string) ([]driver.Request, []*Lock) {
	reqs := make([]driver.Request, len(names))
	locks := make([]*Lock, len(names))
	for i, name := range names {
		reqs[i] = l.request(name, false)
		locks[i] = newLock(l, set.parent, reqs[i], waiting)
		reqs[i].Lost = locks[i].gone
	}
	return reqs, locks
}

// takeEach takes the names one after the other. It stops as soon as a lock that
// it has is lost.
func (l *Locker) takeEach(ctx context.Context, set *LockSet, names []string, how manner) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if how == bound {
		how = waiting // the context of the set is bound, not that of its locks
	}
	for _, name := range names {
		lock, err := l.acquire(ctx, name, how)
		if err != nil {
			return err
		}
		set.locks = append(set.locks, lock)
		context.AfterFunc(lock.Context(), func() { cancel(context.Cause(lock.Context())) })
	}
	return set.Err()
}
