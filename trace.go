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
	// HoldEnd is called at the end of a hold: after ReleaseEnd, after a loss, or by Lock.Detach.
	HoldEnd      func(context.Context, TraceHoldEnd)
	ReleaseStart func(context.Context, TraceLock) context.Context
	ReleaseEnd   func(context.Context, TraceReleaseEnd)
	// Stale is called, with the context of the write, when the guard of a resource refuses a write
	// under a lock; see package fence.
	Stale func(context.Context, TraceStale)

	// Recipes call the following hooks. The locks that they acquire have a kind of their own; see
	// Options.Kind. The terms of an election are the holds of the kind KindElection.

	// TickEnd is called by package cron with the outcome of each tick on this instance.
	TickEnd func(context.Context, TraceTick)
	// OnceEnd is called by package idempotent with the outcome of each call.
	OnceEnd func(context.Context, TraceOnce)
	// RateEnd is for package ratelimit, which has no Locker: pass it as Config.OnDecision.
	RateEnd func(context.Context, TraceRate)
}

// The kinds of acquisitions. Options.Kind may have other values.
const (
	KindLock      = "lock"      // the default
	KindElection  = "election"  // a campaign or a term of package election
	KindCron      = "cron"      // a run of package cron
	KindSemaphore = "semaphore" // a permit of package semaphore
	KindCheck     = "check"     // a probe by Locker.Check
)

// TraceAcquireStart describes the start of an acquisition.
type TraceAcquireStart struct {
	Name   string
	Mode   Mode
	Wait   bool   // false for TryAcquire and Adopt
	Adopt  bool   // true for Adopt
	Kind   string // as Options.Kind, or KindLock
	Engine string // the name of the engine, such as "redis"
}

// TraceAcquireEnd describes the end of an acquisition. If Err is not nil, there is no token.
type TraceAcquireEnd struct {
	TraceLock
	Adopt    bool          // the call was Adopt
	Waited   time.Duration // from start to end
	Queued   time.Duration // the part of it spent in the queue; 0 if it did not join the queue
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
	Kind     string     // as Options.Kind, or KindLock
	Engine   string     // the name of the engine
}

// TraceLock identifies a lock.
type TraceLock struct {
	Name   string
	Mode   Mode
	Token  int64
	Kind   string // as Options.Kind, or KindLock
	Engine string // the name of the engine, such as "redis"
}

// TraceRenewStart describes the start of a batch of renewals.
type TraceRenewStart struct {
	Locks  int
	Engine string // the name of the engine
}

// TraceRenewEnd describes the end of a batch of renewals.
type TraceRenewEnd struct {
	Locks  int
	Failed int           // renewals that failed or found their lock gone
	Gone   int           // how many of Failed found their lock gone: these locks are lost
	Left   time.Duration // the shortest time that a lock of the batch has left; 0 if none is held
	Took   time.Duration

	// Margin is the least part of its lease that a lock of the batch still had when the answer
	// arrived: about 0.6 if renewals are in time, and 0 at the deadline. 1 means that no lock of
	// the batch has a lease.
	Margin float64
	Engine string // the name of the engine
}

// TraceHoldEnd describes the end of a hold.
type TraceHoldEnd struct {
	TraceLock
	Held time.Duration
	Lost *LostError    // nil if the lock was not lost
	Max  *MaxHoldError // nil unless Options.MaxHold ended the context of the lock

	// Detached means that Lock.Detach ended the hold: the lock was not released, and no ReleaseEnd
	// was called.
	Detached bool
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
	Mode     Mode
	Kind     string // of the lock: as Options.Kind, or KindLock
	Engine   string // the name of the engine
}

// TraceTick describes what became of one tick of a cron job on this instance.
type TraceTick struct {
	Job     string
	Engine  string // the name of the engine
	Tick    time.Time
	Outcome string        // "ok", "failed"; without a run "claimed", "overlapped", "late", "paused", "error"
	Token   int64         // the token of the run; 0 if there was none
	Took    time.Duration // how long the run took; 0 if there was none
	Err     error         // the error that the job returned, or why it did not run
}

// TraceOnce describes what became of one call for a key of package idempotent.
type TraceOnce struct {
	Name    string // the name of the lock: "idempotent/" and the key
	Engine  string // the name of the engine of the locks
	Outcome string // "done", "failed", "lost"; without a run "stored", "in_progress", "mismatch", "error"
	Token   int64  // the token of the run; 0 if there was none
	Err     error  // an error of the engine, or why there was no run; nil if the job was done
}

// TraceRate describes a decision of package ratelimit.
type TraceRate struct {
	Limiter string
	Engine  string // the name of the engine; empty if it has none
	Key     string
	Asked   int   // the events that the caller asked for
	Granted int   // those that were granted
	Err     error // why the engine was down; nil if it decided
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

// undoUnless is deferred: it calls undo if a callback panicked or ended its goroutine before done was
// set.
func undoUnless(done *bool, undo func()) {
	if !*done {
		undo()
	}
}
