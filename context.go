package fencelock

import (
	"context"
	"reflect"

	"github.com/fencelock/fencelock/internal/heldlock"
	"github.com/fencelock/fencelock/internal/traceparent"
)

// same reports whether a and b are one context. It returns false for types that are not comparable,
// with which == would panic.
func same(a, b context.Context) bool { return reflect.ValueOf(a).Comparable() && a == b }

// noteKey is the context key of WithNote.
type noteKey struct{}

// WithNote returns a context whose acquisitions carry note instead of Options.Note, such as the ID
// of the request that they serve. The candidates of an election publish their value and rank as the
// note, so it does not apply to those (KindElection).
func WithNote(ctx context.Context, note string) context.Context {
	return context.WithValue(ctx, noteKey{}, note)
}

// traceKey is the context key of a traced.
type traceKey struct{}

// traced is the context that WithTrace returns. It is one allocation, where context.WithValue is two.
type traced struct {
	context.Context
	parent string // a traceparent
}

// Value implements context.Context.
func (t *traced) Value(key any) any {
	if key == (traceKey{}) {
		return t
	}
	return t.Context.Value(key)
}

// WithTrace returns a context whose acquisitions carry a traceparent, in the format of the W3C
// Trace Context header. Engines store it beside the note. Waiters receive it in
// TraceAcquireWait.Held, and lists show it (Holder.Trace, Waiter.Trace), so that the span of a
// waiter can link to the trace of the holder. Tracer.AcquireStart may return such a context. An
// invalid traceparent is ignored.
func WithTrace(ctx context.Context, traceparent string) context.Context {
	return &traced{ctx, traceparent}
}

// traceFrom returns the traceparent of WithTrace, or "" if there is none.
func traceFrom(ctx context.Context) string {
	if t, ok := ctx.Value(traceKey{}).(*traced); ok && traceparent.Valid(t.parent) {
		return t.parent
	}
	return ""
}

// Held identifies a lock that a context belongs to. It is comparable.
type Held struct {
	Name  string
	Token int64 // the fencing token; see [Lock.Token]
	Floor int64 // the lowest token that is still valid; see [Lock.Floor]
}

// HeldFrom returns the innermost lock that ctx belongs to: ctx comes from Do, from a context of a
// Lock, or from a context derived from one. ok is false if there is none, or if the innermost is a
// set of several locks; use [HeldFor] then. HeldFrom does not check whether the lock is still held.
func HeldFrom(ctx context.Context) (held Held, ok bool) {
	return heldOf(ctx.Value(heldlock.Inner{}))
}

// HeldFor returns the innermost lock with that name that ctx belongs to. ok is false if there is
// none. It finds the locks of nested calls and of sets. It does not check whether the lock is still
// held.
func HeldFor(ctx context.Context, name string) (held Held, ok bool) {
	return heldOf(ctx.Value(heldlock.Named(name)))
}

func heldOf(value any) (Held, bool) {
	l, ok := value.(*Lock)
	if !ok {
		return Held{}, false
	}
	return Held{Name: l.Name(), Token: l.Token(), Floor: l.Floor()}, true
}

// TokenFrom returns the fencing token of the innermost lock that ctx belongs to. ok is false in the
// same cases as for [HeldFrom].
func TokenFrom(ctx context.Context) (token int64, ok bool) {
	held, ok := HeldFrom(ctx)
	return held.Token, ok
}

func init() { heldlock.ReportStale = reportStale }

// reportStale implements heldlock.ReportStale: it calls Tracer.Stale.
func reportStale(ctx context.Context, resource, name string, token, floor int64) {
	if l, ok := ctx.Value(heldlock.Named(name)).(*Lock); ok {
		end(ctx, l.locker.renewer.cfg.Tracer.Stale, TraceStale{
			Resource: resource, Name: name, Token: token, Floor: floor, Mode: l.lease.Mode, Kind: l.locker.kind(), Engine: l.locker.renewer.engineName,
		})
	}
}
