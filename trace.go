package fencelock

import (
	"context"
	"time"
)

// Tracer has hooks for metrics and traces. Each hook may be nil. The context that a Start hook
// returns is passed to the matching End hook and to the engine.
//
// Hooks are called from many goroutines and should not block. A hook of Acquire or Release delays
// its caller, and RenewStart delays its batch. One goroutine calls RenewEnd and the HoldEnd of a
// loss in order, so each delays the next ones.
//
// A lock has two spans: AcquireStart to AcquireEnd, and HoldStart to HoldEnd.
type Tracer struct {
	AcquireStart func(context.Context, TraceAcquireStart) context.Context
	// AcquireWait is called once, when the acquisition joins the queue.
	AcquireWait func(context.Context, TraceAcquireWait)
	AcquireEnd  func(context.Context, TraceAcquireEnd)
	// HoldStart is called after a successful AcquireEnd, with the caller's context. The context
	// that it returns is the parent of the lock's context, so the work in Do and under Lock.Context
	// belongs to the span of the hold.
	HoldStart func(context.Context, TraceLock) context.Context
	// RenewStart and RenewEnd enclose one batch of renewals.
	RenewStart func(context.Context, TraceRenewStart) context.Context
	RenewEnd   func(context.Context, TraceRenewEnd)
	// HoldEnd is called at the end of a hold: after ReleaseEnd, or after a loss.
	HoldEnd      func(context.Context, TraceHoldEnd)
	ReleaseStart func(context.Context, TraceLock) context.Context
	ReleaseEnd   func(context.Context, TraceReleaseEnd)
	// Stale is called, with the context of the write, when the guard of a resource refuses a write
	// under a lock; see package fence.
	Stale func(context.Context, TraceStale)
}

// TraceAcquireStart describes the start of an acquisition.
type TraceAcquireStart struct {
	Name string
	Mode Mode
	Wait bool // false for TryAcquire
}

// TraceAcquireEnd describes the end of an acquisition. If Err is not nil, there is no token.
type TraceAcquireEnd struct {
	TraceLock
	Waited   time.Duration // from start to end
	Queued   time.Duration // the part of it spent in the queue; 0 if it did not wait
	Position int           // the first place in the queue; 0 if it did not wait or is unknown
	Held     *HeldError    // the holder that was in the way, if the engine reported it
	Err      error
}

// TraceAcquireWait describes an acquisition that has joined the queue.
type TraceAcquireWait struct {
	Name     string
	Mode     Mode
	Position int        // 1 is next; 0 means unknown
	Held     *HeldError // the current holder; nil means unknown
}

// TraceLock identifies a lock.
type TraceLock struct {
	Name  string
	Mode  Mode
	Token int64
}

// TraceRenewStart describes the start of a batch of renewals.
type TraceRenewStart struct{ Locks int }

// TraceRenewEnd describes the end of a batch of renewals.
type TraceRenewEnd struct {
	Locks  int
	Failed int           // renewals that failed or found their lock gone
	Gone   int           // how many of Failed found their lock gone: these locks are lost
	Left   time.Duration // the shortest time that a lock of the batch has left; 0 if none is held
	Took   time.Duration
}

// TraceHoldEnd describes the end of a hold.
type TraceHoldEnd struct {
	TraceLock
	Held time.Duration
	Lost *LostError    // nil if the lock was not lost
	Max  *MaxHoldError // nil unless Options.MaxHold ended the context of the lock
}

// TraceReleaseEnd describes the end of a release.
type TraceReleaseEnd struct {
	TraceLock
	Took time.Duration
	Err  error
}

// TraceStale describes a write that the guard of a resource refused.
type TraceStale struct {
	Resource string
	Name     string // the name of the lock
	Token    int64
	Floor    int64 // the lowest token that the guard accepts; 0 means unknown
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

// unless is deferred: it calls undo if a callback panicked or ended its goroutine before done was
// set.
func unless(done *bool, undo func()) {
	if !*done {
		undo()
	}
}
