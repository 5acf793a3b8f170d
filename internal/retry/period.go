package retry

import (
	"sync"
	"time"
)

// Period limits a periodic task to one caller per period. The zero Period is due. It is safe for
// concurrent use.
type Period struct {
	mu   sync.Mutex // guards next
	next time.Time
}

// Due reports whether the task is due. If so, the caller must do it, and it is due again after d.
func (p *Period) Due(d time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Before(p.next) {
		return false
	}
	p.next = now.Add(d)
	return true
}

// Again makes the task due at once.
func (p *Period) Again() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = time.Time{}
}
