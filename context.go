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
	if l := (*Lock)(v).named(key); l != nil {
		return l
	}
	return v.parent.Value(key)
}

// under returns ctx with the values of the context that HoldStart made of it.
func (l *Lock) under(ctx context.Context) context.Context {
	if l.parent == ctx {
		return ctx
	}
	return tracedContext{ctx, l.parent}
}

// named returns l if key, of a value of a context, asks for it, and nil otherwise.
func (l *Lock) named(key any) *Lock {
	switch key := key.(type) {
	case lockKey:
		return l
	case nameKey:
		if l.lease.Name == string(key) {
			return l
		}
	}
	return nil
}

// boundContext is a caller's context that knows a lock as well.
type boundContext struct {
	context.Context
	lock *Lock
}

func (b boundContext) Value(key any) any {
	if l := b.lock.named(key); l != nil {
		return l
	}
	return b.Context.Value(key)
}

// noteKey is the context key of a note.
type noteKey struct{}

// WithNote returns a context whose acquisitions carry note in place of Options.Note,
// such as the number of the request that they are made for.
func WithNote(ctx context.Context, note string) context.Context {
	return context.WithValue(ctx, noteKey{}, note)
}

// TokenFrom returns the fencing token of the innermost lock that ctx was made for, by
// Do or by a context of a Lock. It is false if there is none, or if that is one of
// several locks held together; see [TokenFor]. It says nothing about whether the lock
// still stands.
func TokenFrom(ctx context.Context) (token int64, ok bool) {
	return tokenOf(ctx.Value(lockKey{}))
}

// NameFrom returns the name of the lock that TokenFrom's token belongs to, and false
// where that is false.
func NameFrom(ctx context.Context) (name string, ok bool) {
	l, ok := ctx.Value(lockKey{}).(*Lock)
	if !ok {
		return "", false
	}
	return l.Name(), true
}

// TokenFor returns the fencing token of the innermost lock of that name that ctx was
// made for, and false if there is none. Contexts of several locks, nested or held
// together, know them all.
func TokenFor(ctx context.Context, name string) (token int64, ok bool) {
	return tokenOf(ctx.Value(nameKey(name)))
}

func tokenOf(value any) (int64, bool) {
	l, ok := value.(*Lock)
	if !ok {
		return 0, false
	}
	return l.Token(), true
}

// FloorFrom returns the floor that belongs to TokenFrom's token, and false where that
// is false: the smallest token among those who held the name when it was granted. A
// guard refuses tokens below the greatest floor it has seen, so that shared holders do
// not shut one another out.
func FloorFrom(ctx context.Context) (floor int64, ok bool) {
	return floorOf(ctx.Value(lockKey{}))
}

// FloorFor returns the floor that belongs to TokenFor's token; see [FloorFrom].
func FloorFor(ctx context.Context, name string) (floor int64, ok bool) {
	return floorOf(ctx.Value(nameKey(name)))
}

func floorOf(value any) (int64, bool) {
	l, ok := value.(*Lock)
	if !ok {
		return 0, false
	}
	return l.Floor(), true
}
