package pglock

import (
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/pglock/internal/pipe"
)

// sightings are the holders that this process saw to have vanished. Each closes its name
// until its TTL has passed since then, by the clock of this process: whatever the
// server's clock does meanwhile, the holder's context has ended by then.
type sightings struct {
	mu    sync.Mutex                    // guards byKey
	byKey map[int64]map[string]sighting // by key and owner
}

type sighting struct {
	first time.Time
	ttl   time.Duration
}

// note notes what the server said of vanished holders: for how many milliseconds, and
// who. It returns how long the key is closed yet.
func (m *sightings) note(key int64, r pipe.Row) time.Duration {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]sighting{}
	wait := time.Duration(0)
	for _, owner := range strings.Fields(r.Text(2)) {
		s, ok := m.byKey[key][owner]
		if !ok {
			s = sighting{now, r.Millis(1)}
		}
		all[owner] = s
		wait = max(wait, s.end().Sub(now))
	}
	m.byKey[key] = all // the others are gone
	return wait
}

// end is when the lease is over: clocks may run one percent apart.
func (s sighting) end() time.Time { return s.first.Add(s.ttl + s.ttl/100 + time.Millisecond) }

// over returns the vanished owners whose leases are over.
func (m *sightings) over(key int64) []string {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	var gone []string
	for owner, s := range m.byKey[key] {
		if now.After(s.end()) {
			gone = append(gone, owner)
		}
	}
	return gone
}

// forget drops what is known of a key that was granted.
func (m *sightings) forget(key int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byKey, key)
}
