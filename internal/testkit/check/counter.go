package check

import (
	"fmt"
	"sync"
)

// GuardedCounter is a resource that a lock protects: workers read it, add one, and
// write. It is guarded by fencing tokens: who comes with a token smaller than
// the floor seen so far is refused. Reads show the token as well, or a worker
// could write between another's read and write. Without a guard it shows what
// would have happened. The zero GuardedCounter is a guarded one at 0; all methods may be
// called from many goroutines.
type GuardedCounter struct {
	Unguarded bool

	mu       sync.Mutex // guards the rest
	value    int64
	floor    int64
	accepted int64
	stale    int64
}

// Read returns the value, and false if the token is refused.
func (c *GuardedCounter) Read(token, floor int64) (value int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.value, c.admit(token, floor)
}

// Write sets the value, and returns false if the token is refused.
func (c *GuardedCounter) Write(token, floor, value int64) (ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.admit(token, floor) {
		return false
	}
	c.value = value
	c.accepted++
	return true
}

// admit needs c.mu.
func (c *GuardedCounter) admit(token, floor int64) bool {
	if token < c.floor {
		c.stale++
		return c.Unguarded
	}
	c.floor = max(c.floor, floor)
	return true
}

// Stale returns how many calls came with a token that the guard refuses.
func (c *GuardedCounter) Stale() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stale
}

// Check returns an error unless every accepted write counts.
func (c *GuardedCounter) Check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.value != c.accepted {
		return fmt.Errorf("%d writes were accepted and the counter is at %d: %d were lost", c.accepted, c.value, c.accepted-c.value)
	}
	return nil
}
