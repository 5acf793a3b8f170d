package fencelock

import (
	"context"
	"time"
)

// Tracer is told what a Locker does, for metrics and traces. Each hook may be
// nil. The context that a Start hook returns is given to the matching End hook,
// and to the engine. Hooks are called from many goroutines and should not block: a
// hook of Acquire or Release delays its caller, RenewStart its batch, and RenewEnd and
// the HoldEnd of a loss, which are told by one goroutine in order, those after them.
//
// A lock has two spans: AcquireStart to AcquireEnd, and HoldStart to HoldEnd.
type Tracer struct {
	AcquireStart func(context.Context, TraceAcquireStart) context.Context
	// AcquireWait is told once, when the acquisition joins the queue.
	AcquireWait func(context.Context, TraceAcquireWait)
	AcquireEnd  func(context.Context, TraceAcquireEnd)
	// HoldStart follows a successful AcquireEnd, with the context of the caller. The
	// context that it returns is the parent of the lock's: what Do runs, and what is done
	// with Lock.Context, belongs to it.
	HoldStart func(context.Context, TraceLock) context.Context
	// RenewStart and RenewEnd frame a batch of renewals.
	RenewStart func(context.Context, TraceRenewStart) context.Context
	RenewEnd   func(context.Context, TraceRenewEnd)
	// HoldEnd ends a hold: after ReleaseEnd, or after a loss.
	HoldEnd      func(context.Context, TraceHoldEnd)
	ReleaseStart func(context.Context, TraceLock) context.Context
	ReleaseEnd   func(context.Context, TraceReleaseEnd)
	// Stale is told, with the context of the write, that the guard of a resource refused
	// a write under a lock; see package fence.
	Stale func(context.Context, TraceStale)
}

// TraceAcquireStart describes an acquisition that begins.
type TraceAcquireStart struct {
	Name string
	Mode Mode
	Wait bool // false for TryAcquire
}

// TraceAcquireEnd describes an acquisition that succeeded (Err is nil) or not, which has no token
// then.
type TraceAcquireEnd struct {
	TraceLock
	Waited   time.Duration // from start to end
	Queued   time.Duration // how much of that in the queue; 0 if it did not wait
	Position int           // the first place in the queue; 0 if it did not wait or is unknown
	Held     *HeldError    // who was in the way, as far as the engine said; nil if nobody
	Err      error
}

// TraceAcquireWait describes an acquisition that has joined the queue.
type TraceAcquireWait struct {
	Name     string
	Mode     Mode
	Position int        // 1 is next; 0 means unknown
	Held     *HeldError // who is in the way; nil means unknown
}

// TraceLock says which lock it is.
type TraceLock struct {
	Name  string
	Mode  Mode
	Token int64
}

// TraceRenewStart describes a batch of renewals.
type TraceRenewStart struct{ Locks int }

// TraceRenewEnd describes how a batch ended.
type TraceRenewEnd struct {
	Locks  int
	Failed int           // renewals that failed or found their lock gone
	Gone   int           // how many of those found it gone: the locks are lost
	Left   time.Duration // the least time that a lock of the batch has left; 0 if none is held
	Took   time.Duration
}

// TraceHoldEnd describes the end of a hold.
type TraceHoldEnd struct {
	TraceLock
	Held time.Duration
	Lost *LostError // nil when the lock was released
}

// TraceReleaseEnd describes how a release ended.
type TraceReleaseEnd struct {
	TraceLock
	Took time.Duration
	Err  error
}

// TraceStale describes a write that the guard of a resource refused.
type TraceStale struct {
	Resource string
	Name     string // of the lock
	Token    int64
	Floor    int64 // what the guard has stored; 0 means unknown
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

// unless undoes, in a deferred call, what was not done: a callback panicked, or ended
// its goroutine.
func unless(done *bool, undo func()) {
	if !*done {
		undo()
	}
}
