package pglock

import (
	"context"
	"sync"
)

// attempts counts the attempts whose connection may have a lock that is not a hold yet, or that is to be
// released. Close waits for them: their rows would close their names for a TTL.
type attempts struct {
	mu    sync.Mutex // guards all below
	count int
	none  chan struct{} // closed when Close was called and count is 0; nil before Close
}

// enter counts an attempt. It reports whether the engine is open.
func (t *attempts) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.none != nil {
		return false
	}
	t.count++
	return true
}

// leave uncounts an attempt.
func (t *attempts) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count--; t.count == 0 && t.none != nil {
		close(t.none)
	}
}

// close rejects further attempts, and waits for the others until ctx ends.
func (t *attempts) close(ctx context.Context) {
	t.mu.Lock()
	first := t.none == nil
	if first {
		t.none = make(chan struct{})
	}
	none := t.none
	if first && t.count == 0 {
		close(none)
	}
	t.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
	}
}
