// Package deadline provides contexts whose deadline needs no timer until Done is called. Most calls
// end long before their deadline, and a timer costs about a tenth of a fast call.
package deadline

import (
	"context"
	"sync"
	"time"
)

// Context is a context with a deadline that creates a timer on the first call of Done. It is safe
// for concurrent use.
type Context struct {
	context.Context // without the deadline
	deadline        time.Time

	mu      sync.Mutex      // guards timed, cancel, stopped
	timed   context.Context // nil before the first call of Done
	cancel  context.CancelFunc
	stopped bool
}

// New returns ctx with a deadline, which must not be later than that of ctx. Stop ends the context
// and its timer. Without Stop a timer runs until the deadline.
func New(ctx context.Context, deadline time.Time) *Context {
	return &Context{Context: ctx, deadline: deadline}
}

// Deadline returns the deadline.
func (c *Context) Deadline() (deadline time.Time, ok bool) { return c.deadline, true }

// Done returns a channel that is closed when the context ends.
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		c.timed, c.cancel = context.WithDeadline(c.Context, c.deadline)
		if c.stopped {
			c.cancel()
		}
	}
	return c.timed.Done()
}

// Err returns why the context has ended, or nil. It returns DeadlineExceeded after the deadline
// even if no timer has fired.
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed != nil && c.timed.Err() != nil {
		return c.timed.Err()
	}
	if err := c.Context.Err(); err != nil {
		return err
	}
	switch {
	case c.stopped:
		return context.Canceled
	case !time.Now().Before(c.deadline):
		return context.DeadlineExceeded
	}
	return nil
}

// Value lets derived contexts follow the end of this one without a goroutine.
func (c *Context) Value(key any) any {
	c.mu.Lock()
	inner := c.timed
	c.mu.Unlock()
	if inner == nil {
		inner = c.Context
	}
	return inner.Value(key)
}

// Stop ends the context and its timer.
func (c *Context) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	if c.cancel != nil {
		c.cancel()
	}
}

// Beneath returns the context without the deadline.
func (c *Context) Beneath() context.Context { return c.Context }

// Beneath returns ctx without the deadlines of this package, for callers that enforce them without
// a timer.
func Beneath(ctx context.Context) context.Context {
	for {
		c, ok := ctx.(interface{ Beneath() context.Context })
		if !ok {
			return ctx
		}
		ctx = c.Beneath()
	}
}
