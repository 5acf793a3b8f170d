package lockmetrics

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
)

// Holds are the locks of one series that are held now. The zero value is empty. It is safe for
// concurrent use.
type Holds struct {
	mu          sync.Mutex // guards all below, and the fields of each entry
	first, last *entry     // in the order in which they began
	n           int
}

// entry is one lock that is held.
type entry struct {
	since      time.Time
	prev, next *entry
}

// State returns how many locks are held, and how long the oldest has been; 0 if there is none.
func (h *Holds) State() (n int, oldest time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.first != nil {
		oldest = time.Since(h.first.since)
	}
	return h.n, oldest
}

func (h *Holds) add(one *entry) {
	one.since = time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	one.prev = h.last
	if h.last != nil {
		h.last.next = one
	} else {
		h.first = one
	}
	h.last = one
	h.n++
}

func (h *Holds) remove(one *entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one.prev != nil {
		one.prev.next = one.next
	} else {
		h.first = one.next
	}
	if one.next != nil {
		one.next.prev = one.prev
	} else {
		h.last = one.prev
	}
	h.n--
}

// Held is the context of a lock that is held, for the hooks HoldStart and HoldEnd. T is the type of
// an exporter's series.
type Held[T any] struct {
	context.Context
	Series *T
	Span   any // for the exporter; may be nil

	lock  fencelock.TraceLock
	holds *Holds
	entry entry
}

// heldKey is the context key of a Held.
type heldKey[T any] struct{}

// Value implements context.Context.
func (h *Held[T]) Value(key any) any {
	if key == (heldKey[T]{}) {
		return h
	}
	return h.Context.Value(key)
}

// Begin adds a lock to holds. It returns a context for the lock.
func Begin[T any](ctx context.Context, lock fencelock.TraceLock, series *T, holds *Holds) *Held[T] {
	h := &Held[T]{Context: ctx, Series: series, lock: lock, holds: holds}
	holds.add(&h.entry)
	return h
}

// HeldFrom returns what Begin returned for a lock. It returns nil if ctx belongs to another lock,
// such as that of the caller of an acquisition whose grant was not used.
func HeldFrom[T any](ctx context.Context, lock fencelock.TraceLock) *Held[T] {
	if h, _ := ctx.Value(heldKey[T]{}).(*Held[T]); h != nil && h.lock == lock {
		return h
	}
	return nil
}

// End removes the lock. It is called once.
func (h *Held[T]) End() { h.holds.remove(&h.entry) }
