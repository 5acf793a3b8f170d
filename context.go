package fencelock

import (
	"context"
	"time"
)

// lockKey is the context key of the lock that a context was made for.
type lockKey struct{}

// nameKey is the context key of the lock of one name.
type nameKey string

// lockValues is a lock as a context: it never ends, and knows the lock and the
// values of the context that the lock was asked for with.
type lockValues Lock

func (*lockValues) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (*lockValues) Done() <-chan struct{}                   { return nil }
func (*lockValues) Err() error                              { return nil }

func (v *lockValues) Value(key any) any {
	switch key := key.(type) {
	case lockKey:
		return (*Lock)(v)
	case nameKey:
		if v.lease.Name == string(key) {
			return (*Lock)(v)
		}
	}
	return v.parent.Value(key)
}

// boundContext is a context that knows a lock, and ends when its parent does.
type boundContext struct {
	context.Context // the lock's parent
	lock            *Lock
}

func (b boundContext) Value(key any) any { return b.lock.values().Value(key) }

// TokenFrom returns the fencing token of the innermost lock that ctx was made
// for, by Do or by Lock.Context, and 0 if there is none or if it is one of
// several locks held together; see [TokenFor]. It says nothing about whether the
// lock still stands.
func TokenFrom(ctx context.Context) int64 {
	if l, ok := ctx.Value(lockKey{}).(*Lock); ok {
		return l.Token()
	}
	return 0
}

// TokenFor returns the fencing token of the innermost lock of that name that ctx
// was made for, and 0 if there is none. Contexts of several locks, nested or held
// together, know them all.
func TokenFor(ctx context.Context, name string) int64 {
	if l, ok := ctx.Value(nameKey(name)).(*Lock); ok {
		return l.Token()
	}
	return 0
}

// FloorFrom returns the floor that belongs to TokenFrom's token: the smallest
// token among those who held the name when it was granted. A guard refuses
// tokens below the greatest floor it has seen, so that shared holders do not
// shut one another out. It is 0 where TokenFrom is 0.
func FloorFrom(ctx context.Context) int64 {
	if l, ok := ctx.Value(lockKey{}).(*Lock); ok {
		return l.Floor()
	}
	return 0
}
