package natsrecords

import (
	"sync"
	"time"
)

// marks are the greatest sequence numbers that this process has seen of the keys that it has used
// lately. A smaller one means that the server is behind the leader, such as a replica that serves a
// consumer, or a server that was frozen while it was the leader.
type marks struct {
	mu       sync.Mutex // guards the fields below
	now, old map[string]uint64
	turned   time.Time // when now became old
}

// markLife is how long marks are kept, at least. Later, a key may be without a message again.
const markLife = 30 * time.Second

// pass keeps a sequence number of a key, and reports whether it did. It refuses a number smaller than
// an earlier one, unless anyway is true: the bucket may have been purged.
func (m *marks) pass(key string, sequence uint64, anyway bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if age := time.Since(m.turned); age > markLife {
		if age > 2*markLife {
			m.now = nil
		}
		m.now, m.old, m.turned = map[string]uint64{}, m.now, time.Now()
	}
	if sequence < max(m.now[key], m.old[key]) && !anyway {
		return false
	}
	delete(m.old, key)
	m.now[key] = sequence
	return true
}
