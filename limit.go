package fencelock

import (
	"context"
	"sync"
	"time"
)

// limit gives a context that never ends a deadline that costs no timer until
// somebody asks for Done: most calls are over long before, and some engines see to
// the deadline by themselves. stop must follow.
type limit struct {
	context.Context // the one that never ends
	deadline        time.Time

	mu      sync.Mutex      // guards timed, cancel, stopped
	timed   context.Context // nil until somebody asks for Done
	cancel  context.CancelFunc
	stopped bool
}

func newLimit(ctx context.Context, deadline time.Time) *limit {
	return &limit{Context: ctx, deadline: deadline}
}

// Beneath returns the context without its deadline, for an engine that sees to the
// deadline by itself.
func (l *limit) Beneath() context.Context { return l.Context }

func (l *limit) Deadline() (deadline time.Time, ok bool) { return l.deadline, true }

func (l *limit) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timed == nil {
		l.timed, l.cancel = context.WithDeadline(l.Context, l.deadline)
		if l.stopped {
			l.cancel()
		}
	}
	return l.timed.Done()
}

func (l *limit) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.timed != nil:
		return l.timed.Err()
	case l.stopped:
		return context.Canceled
	case !time.Now().Before(l.deadline):
		return context.DeadlineExceeded
	}
	return nil
}

// Value lets a context made of this one hear of its end without a goroutine.
func (l *limit) Value(key any) any {
	l.mu.Lock()
	inner := l.timed
	l.mu.Unlock()
	if inner == nil {
		inner = l.Context
	}
	return inner.Value(key)
}

// stop ends the context, and its timer.
func (l *limit) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	if l.cancel != nil {
		l.cancel()
	}
}
