// Package deadline has contexts whose deadline needs no timer until Done is called. Most calls end
// long before their deadline, and a timer would be a tenth of the cost of a fast one.
package deadline

import (
	"context"
	"sync"
	"time"
)

// Context is a context that knows its deadline, and makes a timer when Done is asked for, by
// whom and as often as it may be.
type Context struct {
	context.Context // without the deadline
	deadline        time.Time

	mu      sync.Mutex      // guards timed, cancel, stopped
	timed   context.Context // nil until somebody asks for Done
	cancel  context.CancelFunc
	stopped bool
}

// New returns ctx with a deadline, which must not be later than one that ctx has. Stop ends it
// and its timer; without it a timer runs until the deadline.
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

// Err says why the context has ended, nil before. It knows that the deadline has passed
// even if no timer has fired yet.
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

// Value lets a context made of this one hear of its end without a goroutine.
func (c *Context) Value(key any) any {
	c.mu.Lock()
	inner := c.timed
	c.mu.Unlock()
	if inner == nil {
		inner = c.Context
	}
	return inner.Value(key)
}

// Stop ends the context, and its timer.
func (c *Context) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	if c.cancel != nil {
		c.cancel()
	}
}

// Beneath returns what the deadline was added to.
func (c *Context) Beneath() context.Context { return c.Context }

// Beneath returns ctx without the deadlines of this package, for somebody who sees to them
// without a timer.
func Beneath(ctx context.Context) context.Context {
	for {
		c, ok := ctx.(interface{ Beneath() context.Context })
		if !ok {
			return ctx
		}
		ctx = c.Beneath()
	}
}
