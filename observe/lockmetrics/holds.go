package lockmetrics

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
)

// holds are the locks of one series that are held now. The zero value is empty. It is safe for
// concurrent use.
type holds struct {
	mu          sync.Mutex // guards all below, and the fields of each entry
	first, last *entry     // in the order in which they began
	n           int
}

// entry is one lock that is held.
type entry struct {
	since      time.Time
	prev, next *entry
}

// state returns how many locks are held, and how long the oldest has been; 0 if there is none.
func (h *holds) state() (n int, oldest time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.first != nil {
		oldest = time.Since(h.first.since)
	}
	return h.n, oldest
}

func (h *holds) add(one *entry) {
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

func (h *holds) remove(one *entry) {
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

// holding is the context of a lock that is held, for the hooks HoldStart and HoldEnd.
type holding struct {
	context.Context
	by     *Recorder
	series *lockSeries
	lock   fencelock.TraceLock
	entry  entry
}

// holdingKey is the context key of a holding. Two exporters may record the same lock.
type holdingKey struct{ by *Recorder }

// Value implements context.Context.
func (h *holding) Value(key any) any {
	if key == (holdingKey{h.by}) {
		return h
	}
	return h.Context.Value(key)
}

// begin adds a lock to the holds of its series.
func (r *Recorder) begin(ctx context.Context, lock fencelock.TraceLock, series *lockSeries) *holding {
	h := &holding{Context: ctx, by: r, series: series, lock: lock}
	series.holds.add(&h.entry)
	return h
}

// holdingFrom returns what begin returned for a lock. It returns nil if ctx belongs to another lock,
// such as that of the caller of an acquisition whose grant was not used.
func (r *Recorder) holdingFrom(ctx context.Context, lock fencelock.TraceLock) *holding {
	if h, _ := ctx.Value(holdingKey{r}).(*holding); h != nil && h.lock == lock {
		return h
	}
	return nil
}

// end removes the lock. It is called once.
func (h *holding) end() { h.series.holds.remove(&h.entry) }
