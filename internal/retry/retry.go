// Package retry provides pauses between attempts, with backoff and jitter, and periodic tasks.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d or until ctx ends. It reports whether ctx has not ended.
func Sleep(ctx context.Context, d time.Duration) bool { return Nap(ctx, d, nil) }

// Nap is Sleep that also ends when wake is closed or has a value, which it receives.
func Nap(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// Backoff computes pauses between failed attempts. They double from the first to the last length.
// It is not safe for concurrent use.
type Backoff struct {
	first, last, next time.Duration
}

// NewBackoff returns pauses from first to last, each with jitter.
func NewBackoff(first, last time.Duration) *Backoff {
	return &Backoff{first: first, last: last, next: first}
}

// Next returns the length of the next pause. It is random, from half to one and a half times its
// nominal length, so that many processes do not retry at the same time after an outage.
func (b *Backoff) Next() time.Duration {
	d := b.next
	b.next = min(2*d, b.last)
	return d/2 + Jitter(d)
}

// Wait sleeps for the next pause; see [Sleep].
func (b *Backoff) Wait(ctx context.Context) bool { return Sleep(ctx, b.Next()) }

// Reset starts again with the first length.
func (b *Backoff) Reset() { b.next = b.first }

// Jitter returns a random duration less than d, or zero if d is not positive.
func Jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d)
}
