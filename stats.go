package fencelock

import (
	"time"

	"github.com/fencelock/fencelock/internal/hold"
)

// Stats are numbers for a dashboard.
type Stats struct {
	Held    int           // locks that are held, those in sets one by one
	Waiting int           // acquisitions under way: they wait for their turn, or for an answer
	Oldest  time.Duration // how long the oldest of the locks has been held
	Left    time.Duration // the least time that one of them has left; 0 without leases
}

// Stats counts the locks of l, and of every Locker that [Locker.With] made of the same
// one. It does no I/O, and looks at each lock: ask for it now and then, not for each
// request.
func (l *Locker) Stats() Stats {
	r, now := l.renewer, instant()
	s := Stats{Waiting: int(r.acquiring.Load())}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Held = len(r.held)
	for lock := range r.held {
		s.Oldest = max(s.Oldest, lock.age(now.Mono))
		if left, ok := lock.left(now); ok && (s.Left == 0 || left < s.Left) {
			s.Left = left
		}
	}
	return s
}

// age is how long the lock has been held.
func (l *Lock) age(now time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.began == (hold.Instant{}) { // it begins just now
		return 0
	}
	return now - l.began.Mono
}
