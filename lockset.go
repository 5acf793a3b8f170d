package fencelock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/fencelock/fencelock/internal/heldlock"
)

// LockSet is several locks held together, from the moment it is returned until it
// is released or one of them is lost. It is safe for concurrent use.
type LockSet struct {
	locks  []*Lock         // by name
	parent context.Context // the caller's
	bound  bool            // the set's context ends with parent

	mu     sync.Mutex      // guards ctx, cancel
	ctx    context.Context // made when somebody asks for it
	cancel context.CancelCauseFunc
}

// Locks returns the locks, ordered by name.
func (s *LockSet) Locks() []*Lock { return slices.Clone(s.locks) }

// Lock returns the lock of that name, nil if it is not in the set.
func (s *LockSet) Lock(name string) *Lock {
	i, found := slices.BinarySearchFunc(s.locks, name, func(l *Lock, name string) int {
		return strings.Compare(l.Name(), name)
	})
	if !found {
		return nil
	}
	return s.locks[i]
}

// Err returns nil while every lock of the set is held, and otherwise what the
// first one that is not says; see [Lock.Err].
func (s *LockSet) Err() error {
	for _, l := range s.locks {
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Context returns a context that ends as soon as one of the locks does, with the
// same cause; see [Lock.Context]. [HeldFor] finds each lock in it.
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
	if lost := s.lost(); lost != nil {
		s.cancel(lost) // at once: who asks for the context of a lost set must not get one that goes on
	}
	for _, l := range s.locks {
		one := l.Context()
		if one.Err() != nil {
			s.cancel(context.Cause(one)) // the same of one that was released
		}
		context.AfterFunc(one, func() { s.cancel(context.Cause(one)) })
	}
	return s.ctx
}

// Release releases every lock at once, each as [Lock.Release] does, and returns
// the errors joined. Another call does nothing and returns nil.
func (s *LockSet) Release() error {
	errs := make([]error, len(s.locks))
	panics := make([]any, len(s.locks)) // of callbacks; those belong to the caller
	var all sync.WaitGroup
	for i, l := range s.locks {
		all.Go(func() { // ends with the release timeout at the latest
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

// end ends the context of a set that was released, for the case that those who
// follow the contexts of its locks have not run yet.
func (s *LockSet) end() {
	s.mu.Lock()
	cancel := s.cancel
	s.mu.Unlock()
	if cancel == nil {
		return
	}
	for _, l := range s.locks {
		if lost := l.lost(); lost != nil {
			cancel(lost)
		}
	}
	cancel(context.Canceled)
}

// lost returns the losses of the locks that were lost, joined.
func (s *LockSet) lost() error {
	var errs []error
	for _, l := range s.locks {
		errs = append(errs, l.lost())
	}
	return errors.Join(errs...)
}

// setContext is a context that knows the locks of a set.
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
		if l := c.set.Lock(string(key)); l != nil {
			return l
		}
	}
	return c.Context.Value(key)
}
