package lockmetrics

import (
	"sync"
	"time"
)

// Holds are the locks of one series that are held now. The zero value is empty. It is safe for
// concurrent use.
type Holds struct {
	mu          sync.Mutex // guards all below, and the fields of each Hold
	first, last *Hold      // in the order in which they began
	n           int
}

// Hold is one lock that is held.
type Hold struct {
	since      time.Time
	list       *Holds
	prev, next *Hold
}

// Begin adds a lock.
func (h *Holds) Begin(one *Hold) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	one.since, one.list, one.prev = now, h, h.last
	if h.last != nil {
		h.last.next = one
	} else {
		h.first = one
	}
	h.last = one
	h.n++
}

// End removes the lock. Only the first call has an effect.
func (one *Hold) End() {
	h := one.list
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if one.list == nil {
		return
	}
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
	one.list, one.prev, one.next = nil, nil, nil
	h.n--
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
