package pglock

import (
	"context"
	"sync"
)

// attempts counts the attempts whose connection may have a lock that is not a hold yet, or that is
// to be released. Close waits for them: their rows would close their names for a TTL.
type attempts struct {
	mu    sync.Mutex // guards all below
	count int
	none  chan struct{} // closed when Close was called and count is 0; nil before Close
}

// enter counts an attempt. It reports whether the engine is open.
func (a *attempts) enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.none != nil {
		return false
	}
	a.count++
	return true
}

// leave uncounts an attempt.
func (a *attempts) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count--; a.count == 0 && a.none != nil {
		close(a.none)
	}
}

// close rejects further attempts, and waits for the others until ctx ends.
func (a *attempts) close(ctx context.Context) {
	a.mu.Lock()
	first := a.none == nil
	if first {
		a.none = make(chan struct{})
	}
	none := a.none
	if first && a.count == 0 {
		close(none)
	}
	a.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
	}
}
