package fencelock

import (
	"context"
	"reflect"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/heldlock"
)

// same reports whether a and b are one context. It says no of those whose type cannot be
// compared, which == would panic for.
func same(a, b context.Context) bool { return reflect.ValueOf(a).Comparable() && a == b }

// noteKey is the context key of a note.
type noteKey struct{}

// WithNote returns a context whose acquisitions carry note in place of Options.Note,
// such as the number of the request that they are made for.
func WithNote(ctx context.Context, note string) context.Context {
	return context.WithValue(ctx, noteKey{}, note)
}

// traceKey is the context key of a traceparent.
type traceKey struct{}

// WithTrace returns a context whose acquisitions carry a traceparent, as the header of W3C
// Trace Context has it. Engines store it beside the note. Whoever waits for the lock is told it
// by TraceAcquireWait.Held, and lists show it (Holder.Trace, Waiter.Trace), so that a span of
// the waiter can link to the trace it waited for. The context that Tracer.AcquireStart returns
// may be such a one. A text that is no traceparent is dropped.
func WithTrace(ctx context.Context, traceparent string) context.Context {
	return context.WithValue(ctx, traceKey{}, traceparent)
}

// traceFrom returns the traceparent of WithTrace, empty if there is none.
func traceFrom(ctx context.Context) string {
	if trace, ok := ctx.Value(traceKey{}).(string); ok && driver.ValidTrace(trace) {
		return trace
	}
	return ""
}

// Held is what a context says of a lock that it was made for. It is comparable.
type Held struct {
	Name  string
	Token int64 // the fencing token; see [Lock.Token]
	Floor int64 // at most Token, and equal to it for an exclusive lock; see [Lock.Floor]
}

// HeldFrom returns what ctx says of the innermost lock that it was made for, by Do or by a
// context of a Lock. It is false if there is none, or if that is one of several locks held
// together; see [HeldFor]. It says nothing about whether the lock still stands.
func HeldFrom(ctx context.Context) (held Held, ok bool) {
	return heldOf(ctx.Value(heldlock.Inner{}))
}

// HeldFor returns what ctx says of the innermost lock of that name that it was made for,
// and false if there is none. Contexts of several locks, nested or held together, know
// them all.
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

// TokenFrom returns the fencing token of the innermost lock that ctx was made for. It is
// false where [HeldFrom] is.
func TokenFrom(ctx context.Context) (token int64, ok bool) {
	held, ok := HeldFrom(ctx)
	return held.Token, ok
}

func init() { heldlock.ReportStale = reportStale }

// reportStale is heldlock.ReportStale.
func reportStale(ctx context.Context, resource, name string, token, floor int64) {
	if l, ok := ctx.Value(heldlock.Named(name)).(*Lock); ok {
		end(ctx, l.renewer.cfg.Tracer.Stale, TraceStale{Resource: resource, Name: name, Token: token, Floor: floor})
	}
}
