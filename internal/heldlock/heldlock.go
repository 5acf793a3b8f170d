// Package heldlock gives package fence access to the locks that a context belongs to, without
// exporting it to programs. Package fencelock imports it and creates the contexts.
package heldlock

import "context"

// Inner is the context key of the innermost *fencelock.Lock, or of the set of several locks. Two
// contexts with the same value belong to the same lock or set.
type Inner struct{}

// Named is the context key of the innermost *fencelock.Lock with that name.
type Named string

// ReportStale calls Tracer.Stale after the guard of a resource has refused a write. name and token
// are those of the lock; floor is the lowest token that the guard accepts, or 0 if unknown. If ctx
// does not belong to a lock with that name, it does nothing. Package fencelock sets it.
var ReportStale func(ctx context.Context, resource, name string, token, floor int64)
