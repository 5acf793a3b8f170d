package fencelock

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/internal/hold"
)

// SleepAt returns a function that tells how long a machine has been suspended,
// by a clock that read reads.
func SleepAt(read func() time.Duration) func(now hold.Instant) time.Duration {
	c := sleepClock{read: read}
	return c.at
}

// NewLimit makes the context of a release, and what stops it.
func NewLimit(ctx context.Context, deadline time.Time) (context.Context, func()) {
	l := newLimit(ctx, deadline)
	return l, l.stop
}
