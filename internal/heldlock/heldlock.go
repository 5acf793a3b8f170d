// Package heldlock contains what package fence needs of the locks in a context, and programs do
// not. Package fencelock, whose locks they are, imports it and makes the contexts.
package heldlock

import "context"

// Inner is the context key of the innermost *fencelock.Lock, or of the set of locks that is held
// together, which is none. Two contexts with one value were made for the same.
type Inner struct{}

// Named is the context key of the innermost *fencelock.Lock of that name.
type Named string

// ReportStale tells Tracer.Stale that a guard of resource, whose floor is floor or unknown if it is 0,
// refused a write with a token of the lock of that name that ctx was made for, and nobody if ctx was
// made for none. Package fencelock sets it.
var ReportStale func(ctx context.Context, resource, name string, token, floor int64)
