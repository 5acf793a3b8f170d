package retry

import (
	"sync"
	"time"
)

// Period is for what is done once in a while, by whoever comes first. The zero Period is due.
// It may be used from many goroutines at once.
type Period struct {
	mu   sync.Mutex // guards next
	next time.Time
}

// Due reports whether it is time. The caller does it then, and it is due again after d.
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

// Again makes it due at once.
func (p *Period) Again() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = time.Time{}
}
