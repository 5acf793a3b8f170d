package fencelock

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Tracer is told what a Locker does, for metrics and traces. Each hook may be
// nil. The context that a Start hook returns is given to the matching End hook,
// and to the engine. Hooks are called from many goroutines and must not block.
type Tracer struct {
	AcquireStart func(context.Context, TraceAcquireStart) context.Context
	AcquireEnd   func(context.Context, TraceAcquireEnd)
	// RenewStart and RenewEnd frame a batch of renewals.
	RenewStart func(context.Context, TraceRenewStart) context.Context
	RenewEnd   func(context.Context, TraceRenewEnd)
	// HoldEnd ends what a successful AcquireEnd began.
	HoldEnd      func(context.Context, TraceHoldEnd)
	ReleaseStart func(context.Context, TraceReleaseStart) context.Context
	ReleaseEnd   func(context.Context, TraceReleaseEnd)
}

// TraceAcquireStart describes an acquisition that begins.
type TraceAcquireStart struct {
	Name string
	Mode driver.Mode
	Wait bool // false for TryAcquire
}

// TraceAcquireEnd describes an acquisition that succeeded (Err is nil) or not.
type TraceAcquireEnd struct {
	Name     string
	Mode     driver.Mode
	Token    int64
	Waited   time.Duration // from start to end
	Position int           // the first place in the queue; 0 if it did not wait or is unknown
	Err      error
}

// TraceRenewStart describes a batch of renewals.
type TraceRenewStart struct{ Locks int }

// TraceRenewEnd describes how a batch ended.
type TraceRenewEnd struct {
	Locks  int
	Failed int // renewals that failed or found their lock gone
	Took   time.Duration
}

// TraceHoldEnd describes the end of a hold.
type TraceHoldEnd struct {
	Name  string
	Token int64
	Held  time.Duration
	Lost  error // a *LostError; nil when the lock was released
}

// TraceReleaseStart describes a release that begins.
type TraceReleaseStart struct {
	Name  string
	Token int64
}

// TraceReleaseEnd describes how a release ended.
type TraceReleaseEnd struct {
	Name  string
	Token int64
	Took  time.Duration
	Err   error
}

// start calls a Start hook, if there is one.
func start[T any](ctx context.Context, hook func(context.Context, T) context.Context, data T) context.Context {
	if hook == nil {
		return ctx
	}
	return hook(ctx, data)
}

// end calls an End hook, if there is one.
func end[T any](ctx context.Context, hook func(context.Context, T), data T) {
	if hook != nil {
		hook(ctx, data)
	}
}
