package redisconn

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/internal/deadline"
)

// WithDeadline returns ctx with a deadline after d, for one call of a [Conn]. It has a timer
// only from when somebody waits for its end, and until the deadline: who waits often
// begins with [Timed].
func WithDeadline(ctx context.Context, d time.Duration) context.Context {
	at := time.Now().Add(d)
	if sooner, ok := ctx.Deadline(); ok && sooner.Before(at) {
		return ctx
	}
	return deadline.New(ctx, at)
}

// Timed returns ctx with a timer of its own, which cancel ends.
func Timed(ctx context.Context) (timed context.Context, cancel context.CancelFunc) {
	at, ok := ctx.Deadline()
	if beneath := deadline.Beneath(ctx); ok && beneath != ctx {
		return context.WithDeadline(beneath, at)
	}
	return ctx, func() {}
}
