package redisconn

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/internal/deadline"
)

// Within is [WithDeadline], but returns ctx itself if d is 0.
func Within(ctx context.Context, d time.Duration) context.Context {
	if d == 0 {
		return ctx
	}
	return WithDeadline(ctx, d)
}

// WithDeadline returns ctx with a deadline after d, for one call of a [Conn]. It creates a timer
// only when Done is called, and the timer runs until the deadline. Code that calls Done often
// should use [Timed] first.
func WithDeadline(ctx context.Context, d time.Duration) context.Context {
	at := time.Now().Add(d)
	if sooner, ok := ctx.Deadline(); ok && sooner.Before(at) {
		return ctx
	}
	return deadline.New(ctx, at)
}

// Timed returns ctx with a timer that cancel stops.
func Timed(ctx context.Context) (timed context.Context, cancel context.CancelFunc) {
	at, ok := ctx.Deadline()
	if beneath := deadline.Beneath(ctx); ok && beneath != ctx {
		return context.WithDeadline(beneath, at)
	}
	return ctx, func() {}
}
