package fence

import (
	"context"
	"sync"
)

// Store keeps the floors of a [Handler]. Its methods are called from many goroutines.
type Store interface {
	// Check refuses a fence whose token is below the floor of the resource, with what
	// Fence.Refuse returns, and otherwise raises the floor to that of the fence, in one
	// atomic step. It is ErrResource for a resource that the store cannot keep, and
	// ErrNoToken for a fence without a token. Any other error means that the store did not
	// answer.
	Check(ctx context.Context, resource string, f Fence) error
}

// Memory is a Store for a single process whose resources end with it, and for tests. It
// forgets nothing while it lives. The zero value is ready.
type Memory struct {
	mu     sync.Mutex // guards floors
	floors map[string]int64
}

// Check compares and raises a floor.
func (m *Memory) Check(ctx context.Context, resource string, f Fence) error {
	if !f.valid() {
		return ErrNoToken
	}
	m.mu.Lock()
	floor := m.floors[resource]
	late := stale(f, floor)
	if !late {
		if m.floors == nil {
			m.floors = map[string]int64{}
		}
		m.floors[resource] = raise(f, floor)
	}
	m.mu.Unlock()
	if late {
		return f.Refuse(ctx, resource, floor)
	}
	return nil
}
