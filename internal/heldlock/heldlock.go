// Package heldlock is what package fence finds out about the locks that a context was made for.
// Package fencelock, whose locks they are, imports it and makes the contexts.
package heldlock

import "context"

// Inner is the context key of the innermost lock, a Lock, or of the set of locks that is held
// together, which is none. Two contexts with one value were made for the same.
type Inner struct{}

// Named is the context key of the innermost lock of that name, a Lock.
type Named string

// Lock is a *fencelock.Lock.
type Lock interface {
	Name() string
	Token() int64
	Floor() int64
}

// ReportStale tells Tracer.Stale that a guard of resource, whose floor is floor or unknown if it is 0,
// refused a write with a token of the lock of that name that ctx was made for, and nobody if ctx was
// made for none. Package fencelock sets it.
var ReportStale func(ctx context.Context, resource, name string, token, floor int64)
