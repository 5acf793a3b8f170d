package fencelock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/clock"
	"github.com/fencelock/fencelock/internal/heldlock"
)

// LockSet is several locks held together. It is held from the moment it is returned until it is
// released or one of its locks is lost. It is safe for concurrent use.
type LockSet struct {
	locks  []*Lock         // sorted by name
	parent context.Context // the caller's context
	bound  bool            // whether the set's context ends with parent

	mu     sync.Mutex      // guards ctx, cancel
	ctx    context.Context // created on first use
	cancel context.CancelCauseFunc
}

// Locks returns the locks, ordered by name.
func (s *LockSet) Locks() []*Lock { return slices.Clone(s.locks) }

// limit begins the maximum hold of all locks.
func (s *LockSet) limit(d time.Duration) {
	now := clock.Now()
	for _, l := range s.locks {
		l.limit(d, now)
	}
}

// Err returns nil while every lock of the set is held. Otherwise it returns the error of the first
// one that is not; see [Lock.Err].
func (s *LockSet) Err() error {
	for _, l := range s.locks {
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Context returns a context that ends when the first of the locks ends, with the same cause; see
// [Lock.Context]. [HeldFor] finds each lock in it.
func (s *LockSet) Context() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx != nil {
		return s.ctx
	}
	parent := s.parent
	if !s.bound {
		parent = context.WithoutCancel(parent)
	}
	s.ctx, s.cancel = context.WithCancelCause(setContext{parent, s})
	if lost := s.failure(); lost != nil {
		s.cancel(lost) // now, not by AfterFunc: the context of a lost set must be cancelled when it is returned
	}
	for _, l := range s.locks {
		one := l.Context()
		if one.Err() != nil {
			s.cancel(context.Cause(one)) // likewise for a released lock
		}
		context.AfterFunc(one, func() { s.cancel(context.Cause(one)) })
	}
	return s.ctx
}

// Release releases all locks concurrently, each as [Lock.Release] does, and returns their errors
// joined. Further calls do nothing and return nil.
func (s *LockSet) Release() error {
	errs := make([]error, len(s.locks))
	panics := make([]any, len(s.locks)) // panics of hooks, passed on to the caller
	var all sync.WaitGroup
	for i, l := range s.locks {
		all.Go(func() { // ends at the release timeout at the latest
			defer func() { panics[i] = recover() }()
			errs[i] = l.Release()
		})
	}
	all.Wait()
	s.end()
	for _, p := range panics {
		rethrow(p)
	}
	return errors.Join(errs...)
}

// end cancels the context of a released set, in case the callbacks of its locks' contexts have not
// run yet.
func (s *LockSet) end() {
	s.mu.Lock()
	cancel := s.cancel
	s.mu.Unlock()
	if cancel == nil {
		return
	}
	for _, l := range s.locks {
		if lost := l.failure(); lost != nil {
			cancel(lost)
		}
	}
	cancel(context.Canceled)
}

// lost returns the errors of the lost locks, joined.
func (s *LockSet) failure() error {
	var errs []error
	for _, l := range s.locks {
		errs = append(errs, l.failure())
	}
	return errors.Join(errs...)
}

func byName(l *Lock, name string) int { return strings.Compare(l.Name(), name) }

// setContext is a context with the locks of a set as values.
type setContext struct {
	context.Context
	set *LockSet
}

func (c setContext) Value(key any) any {
	switch key := key.(type) {
	case heldlock.Inner:
		if len(c.set.locks) == 1 {
			return c.set.locks[0]
		}
		return c.set
	case heldlock.Named:
		if i, found := slices.BinarySearchFunc(c.set.locks, string(key), byName); found {
			return c.set.locks[i]
		}
	}
	return c.Context.Value(key)
}
