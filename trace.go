package fencelock

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/fencelock/fencelock/driver"
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
	HoldStart func(context.Context, TraceHoldStart) context.Context
	// RenewStart and RenewEnd frame a batch of renewals.
	RenewStart func(context.Context, TraceRenewStart) context.Context
	RenewEnd   func(context.Context, TraceRenewEnd)
	// HoldEnd ends a hold: after ReleaseEnd, or after a loss.
	HoldEnd      func(context.Context, TraceHoldEnd)
	ReleaseStart func(context.Context, TraceReleaseStart) context.Context
	ReleaseEnd   func(context.Context, TraceReleaseEnd)
	// Stale is told, with the context of the write, that the guard of a resource refused
	// a write under a lock; see package fence.
	Stale func(context.Context, TraceStale)
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
	Queued   time.Duration // how much of that in the queue; 0 if it did not wait
	Position int           // the first place in the queue; 0 if it did not wait or is unknown
	Held     *HeldError    // who was in the way, as far as the engine said; nil if nobody
	Err      error
}

// TraceAcquireWait describes an acquisition that has joined the queue.
type TraceAcquireWait struct {
	Name     string
	Mode     driver.Mode
	Position int        // 1 is next; 0 means unknown
	Held     *HeldError // who is in the way; nil means unknown
}

// TraceHoldStart describes a hold that begins.
type TraceHoldStart struct {
	Name  string
	Mode  driver.Mode
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
	Name  string
	Mode  driver.Mode
	Token int64
	Held  time.Duration
	Lost  *LostError // nil when the lock was released
}

// TraceReleaseStart describes a release that begins.
type TraceReleaseStart struct {
	Name  string
	Mode  driver.Mode
	Token int64
}

// TraceReleaseEnd describes how a release ended.
type TraceReleaseEnd struct {
	Name  string
	Mode  driver.Mode
	Token int64
	Took  time.Duration
	Err   error
}

// TraceStale describes a write that the guard of a resource refused.
type TraceStale struct {
	Resource string
	Name     string // of the lock
	Token    int64
	Floor    int64 // what the guard has stored; 0 means unknown
}

// ReportStale tells Tracer.Stale that a guard refused a write under the lock of
// data.Name that ctx was made for, and nobody if ctx was made for none. Guards call it.
func ReportStale(ctx context.Context, data TraceStale) {
	if l, ok := ctx.Value(nameKey(data.Name)).(*Lock); ok {
		end(ctx, l.renewer.cfg.Tracer.Stale, data)
	}
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

// report is what the tracer and the logger hear of one acquisition: that it begins,
// and once how it ended. A nil one tells nobody.
type report struct {
	cfg   *Config
	asked context.Context // given to AcquireStart
	ctx   context.Context // what it returned
	begun time.Time
	data  TraceAcquireEnd
	over  bool

	joined time.Time // when it joined the queue; zero if it did not
}

// report tells the tracer that an acquisition begins, for which the caller calls end.
func (l *Locker) report(ctx context.Context, req driver.Request) *report {
	if l.untraced(ctx) {
		return nil
	}
	r := &report{cfg: &l.cfg, asked: ctx, begun: time.Now(), data: TraceAcquireEnd{Name: req.Name, Mode: req.Mode}}
	r.ctx = start(ctx, l.cfg.Tracer.AcquireStart, TraceAcquireStart{Name: req.Name, Mode: req.Mode, Wait: req.Wait})
	return r
}

// untraced reports whether nobody is to be told of acquisitions.
func (l *Locker) untraced(ctx context.Context) bool {
	t := l.cfg.Tracer
	return t.AcquireStart == nil && t.AcquireWait == nil && t.AcquireEnd == nil && !l.cfg.Logger.Enabled(ctx, slog.LevelDebug)
}

// within returns the context of AcquireStart. One that was made of its parent
// meanwhile gets its values.
func (r *report) within(ctx context.Context) context.Context {
	switch {
	case r == nil:
		return ctx
	case ctx == r.asked:
		return r.ctx
	}
	return tracedContext{ctx, r.ctx}
}

// tracedContext ends when the first context does, and has the values of the second.
type tracedContext struct {
	context.Context
	values context.Context
}

func (c tracedContext) Value(key any) any { return c.values.Value(key) }

// waiting returns a callback that tells once that the acquisition waits, and calls
// onWait, which may be nil.
func (r *report) waiting(onWait func(driver.WaitInfo)) func(driver.WaitInfo) {
	if r == nil {
		return onWait
	}
	return func(info driver.WaitInfo) {
		if r.data.Position == 0 {
			r.data.Position = info.Position
		}
		if info.Held != nil {
			r.data.Held = info.Held
		}
		if r.joined.IsZero() {
			r.joined = time.Now()
			end(r.ctx, r.cfg.Tracer.AcquireWait, TraceAcquireWait{Name: r.data.Name, Mode: r.data.Mode, Position: info.Position, Held: info.Held})
		}
		if onWait != nil {
			onWait(info)
		}
	}
}

// end tells how the acquisition ended, the first time it is called.
func (r *report) end(lock *Lock, err error) {
	if r == nil || r.over {
		return
	}
	r.over = true
	r.data.Waited, r.data.Err = time.Since(r.begun), err
	if !r.joined.IsZero() {
		r.data.Queued = time.Since(r.joined)
	}
	if held, ok := errors.AsType[*HeldError](err); ok {
		r.data.Held = held
	}
	if err == nil {
		r.data.Token = lock.Token()
	}
	end(r.ctx, r.cfg.Tracer.AcquireEnd, r.data)
	r.cfg.Logger.DebugContext(r.ctx, "acquire", "name", r.data.Name, "mode", r.data.Mode.String(),
		"waited", r.data.Waited, "token", r.data.Token, "error", err)
}
