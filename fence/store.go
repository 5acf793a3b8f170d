package fence

import (
	"context"
	"sync"
)

// Store stores the floors of a [Handler]. Its methods must be safe for concurrent use.
type Store interface {
	// Check atomically refuses a fence whose token is below the floor of the resource, or raises
	// the floor to that of the fence. A refusal is the error of Fence.Refuse. For a resource that
	// the store does not accept the error is ErrResource, and for a fence without a token
	// ErrNoToken. Any other error means that the store did not answer.
	Check(ctx context.Context, resource string, f Fence) error
}

// Memory is a Store in memory, for tests, or for a single process whose resources end with it. It
// keeps its floors for ever. The zero value is ready to use.
type Memory struct {
	mu     sync.Mutex // guards floors
	floors map[string]int64
}

// Check checks and raises a floor.
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
