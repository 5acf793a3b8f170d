// Package record records what a program does with its locks of fencelock, for a test with package
// chaostest:
//
//	history, err := history.FromEnv() // nil, unless a test has started the program
//	...
//	locks := fencelock.New(engine, &fencelock.Config{Tracer: record.Tracer(history)})
//
// Refused writes are recorded if a guard of package fence refuses them. The program itself records
// the writes that were accepted, with [Wrote].
package record

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/chaostest/history"
)

// Tracer returns hooks that record acquisitions, losses and releases, or nil if w is nil. Errors of
// w are ignored.
func Tracer(w *history.Writer) *fencelock.Tracer {
	if w == nil {
		return nil
	}
	r := &recorder{writer: w, held: map[fencelock.Held]*holding{}}
	return &fencelock.Tracer{
		AcquireStart: r.acquireStart, AcquireEnd: r.acquireEnd,
		ReleaseStart: r.releaseStart, HoldEnd: r.holdEnd, Stale: r.stale,
	}
}

// Wrote records that the guarded resource accepted a write under the innermost lock of ctx. All
// writes under one lock count as those of one resource. value
// is the place of the write in the order of the resource, such as the new value of a counter; 0
// means that it is not known. began is when the write began, by [history.Now].
func Wrote(ctx context.Context, w *history.Writer, began time.Duration, value int64) error {
	held, _ := fencelock.HeldFrom(ctx)
	return w.Write(history.Event{Kind: history.Write, Name: held.Name, Token: held.Token, From: began, Value: value})
}

// A recorder turns the calls of a tracer into events.
type recorder struct {
	writer *history.Writer

	mu   sync.Mutex // guards held
	held map[fencelock.Held]*holding
}

// A holding is an acquisition that has not ended.
type holding struct {
	id       string
	returned time.Duration
	released time.Duration // when release was called; 0 before
}

// idKey is the context key of the ID of an attempt.
type idKey struct{}

func (r *recorder) acquireStart(ctx context.Context, t fencelock.TraceAcquireStart) context.Context {
	id := rand.Text()[:10] // no other process has the same
	_ = r.writer.Write(history.Event{Kind: history.Call, ID: id, Name: t.Name, Try: !t.Wait})
	return context.WithValue(ctx, idKey{}, id)
}

func (r *recorder) acquireEnd(ctx context.Context, t fencelock.TraceAcquireEnd) {
	id, _ := ctx.Value(idKey{}).(string)
	if t.Err != nil {
		_ = r.writer.Write(history.Event{Kind: history.Failed, ID: id, Name: t.Name, Held: errors.Is(t.Err, fencelock.ErrHeld), Text: t.Err.Error()})
		return
	}
	h := &holding{id: id, returned: history.Now()}
	r.mu.Lock()
	r.held[key(t.TraceLock)] = h
	r.mu.Unlock()
	_ = r.writer.Write(history.Event{At: h.returned, Kind: history.Grant, ID: id, Name: t.Name, Token: t.Token, Shared: t.Mode == fencelock.Shared})
}

func key(t fencelock.TraceLock) fencelock.Held { return fencelock.Held{Name: t.Name, Token: t.Token} }

func (r *recorder) releaseStart(ctx context.Context, t fencelock.TraceLock) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.held[key(t)]; h != nil {
		h.released = history.Now()
	}
	return ctx
}

// holdEnd records for how long the holder believed in its lock. The hooks are called a little after
// what they report, or much later if the process is frozen then. So the end of the hold counts from
// when acquire returned, if that is earlier.
func (r *recorder) holdEnd(_ context.Context, t fencelock.TraceHoldEnd) {
	r.mu.Lock()
	h := r.held[key(t.TraceLock)]
	delete(r.held, key(t.TraceLock))
	r.mu.Unlock()
	if h == nil {
		return
	}
	now := history.Now()
	ended := min(now, h.returned+t.Held)
	believed := ended
	if h.released != 0 {
		believed = min(believed, h.released)
	}
	if t.Lost != nil {
		e := history.Event{At: ended, Kind: history.Lost, ID: h.id, Name: t.Name, Text: t.Lost.Reason.Error()}
		if !t.Lost.Deadline.IsZero() {
			e.Until = now + time.Until(t.Lost.Deadline)
			believed = min(believed, e.Until)
		}
		_ = r.writer.Write(e)
	}
	if believed >= h.returned {
		_ = r.writer.Write(history.Event{At: believed, Kind: history.Alive, ID: h.id, Name: t.Name})
	}
	_ = r.writer.Write(history.Event{At: ended, Kind: history.End, ID: h.id, Name: t.Name})
}

// stale records a refused write.
func (r *recorder) stale(_ context.Context, t fencelock.TraceStale) {
	_ = r.writer.Write(history.Event{Kind: history.Write, Name: t.Name, Token: t.Token, Refused: true})
}
