package redislock

import (
	"context"
	"time"
)

// withDeadline returns ctx with a deadline after d, for one call of a [Conn]. It costs
// no timer, which would be a tenth of a call: Err and Deadline know the deadline,
// but Done is that of ctx. A Conn honours both.
func withDeadline(ctx context.Context, d time.Duration) context.Context {
	deadline := time.Now().Add(d)
	if sooner, ok := ctx.Deadline(); ok && sooner.Before(deadline) {
		return ctx
	}
	return untimedContext{ctx, deadline}
}

// untimedContext is a context with a deadline that nothing but Err tells.
type untimedContext struct {
	context.Context
	deadline time.Time
}

func (l untimedContext) Deadline() (deadline time.Time, ok bool) { return l.deadline, true }

func (l untimedContext) Err() error {
	if err := l.Context.Err(); err != nil {
		return err
	}
	if !time.Now().Before(l.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// Untimed marks the context for connections in other packages: who waits for Done
// adds a timer.
func (untimedContext) Untimed() {}

// timed returns ctx with a Done that knows its deadline, even if ctx is limited.
func timed(ctx context.Context) (context.Context, context.CancelFunc) {
	if l, ok := ctx.(untimedContext); ok {
		return context.WithDeadline(l.Context, l.deadline)
	}
	return ctx, func() {}
}
