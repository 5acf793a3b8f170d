// Package retry has the pauses between attempts, and periods for what is done from time to time.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d, or until ctx ends, and reports whether ctx goes on.
func Sleep(ctx context.Context, d time.Duration) bool { return Nap(ctx, d, nil) }

// Nap is Sleep that ends early when wake is closed, or has something, which is taken.
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

// Backoff spaces out attempts that fail: pauses double from the first to the last
// length. It is for one goroutine.
type Backoff struct {
	first, last, next time.Duration
}

// NewBackoff returns pauses from first to last, each with jitter.
func NewBackoff(first, last time.Duration) *Backoff {
	return &Backoff{first: first, last: last, next: first}
}

// Next returns the length of the next pause. It is random, from half of its nominal
// length to one and a half: many processes that see one outage come back one by one.
func (b *Backoff) Next() time.Duration {
	d := b.next
	b.next = min(2*d, b.last)
	return d/2 + Jitter(d)
}

// Wait makes the next pause, see [Sleep].
func (b *Backoff) Wait(ctx context.Context) bool { return Sleep(ctx, b.Next()) }

// Reset begins with the first length again.
func (b *Backoff) Reset() { b.next = b.first }

// Jitter returns a random part of d; zero if d is not positive.
func Jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d)
}
