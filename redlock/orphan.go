package redlock

import (
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// releaseCall takes an acquisition back on one node.
type releaseCall struct {
	name, owner string
	token       int64  // 0 fits any: some nodes store one a little off
	publish     string // whether who waits is told; see publishMode
	until       int64  // a request of this owner may arrive until then, by the node's clock; 0 means that all were answered
	failed      bool   // the take failed, or was a break: any minimum hold ends with it
	ttl         time.Duration
}

// call makes the call. Its last two arguments are left out where they say nothing, as
// in most releases.
func (d releaseCall) call(c *client) redisconn.Call {
	args := []string{d.owner, redisfmt.Decimal(d.token), d.publish}
	if d.until > 0 || d.failed {
		args = append(args, redisfmt.Decimal(d.until), flag(d.failed))
	}
	return c.call(c.lua.release, d.name, args...)
}

// orphan is a lock that a node may have granted, or may grant yet, and that nobody
// has: a request of unknown outcome, or a release that did not get through. It
// is released when the node answers. What stays nevertheless keeps the name for
// one TTL on this one node, and is never taken for a lock that is held.
type orphan struct {
	releaseCall
	expires time.Time // the lease is over by then
}

// maxOrphans bounds the memory that a dead node takes. More are left to expire.
const maxOrphans = 10_000

// orphans are those of one node.
type orphans struct {
	mu      sync.Mutex // guards byOwner
	byOwner map[string]orphan
}

// add notes an orphan.
func (s *orphans) add(d releaseCall) {
	d.token = 0
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.byOwner) >= maxOrphans {
		s.dropExpired(now)
	}
	if len(s.byOwner) < maxOrphans {
		// A frozen node counts the lease from when it is thawed.
		s.byOwner[d.owner] = orphan{d, now.Add(max(10*d.ttl, time.Minute))}
	}
}

// dropExpired forgets orphans that are over. The caller holds mu.
func (s *orphans) dropExpired(now time.Time) {
	for owner, d := range s.byOwner {
		if d.expires.Before(now) {
			delete(s.byOwner, owner)
		}
	}
}

// batch returns up to limit orphans to release, and forgets those that are none: the
// acquisition stands after all.
func (s *orphans) batch(limit int, stands func(owner string) bool) (list []releaseCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropExpired(time.Now())
	for owner, d := range s.byOwner {
		if len(list) == limit {
			break
		}
		if stands(owner) {
			delete(s.byOwner, owner)
			continue
		}
		list = append(list, d.releaseCall)
	}
	return list
}

func (s *orphans) remove(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byOwner, owner)
}

func (s *orphans) has(owner string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.byOwner[owner]
	return ok
}
