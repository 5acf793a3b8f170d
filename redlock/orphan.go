package redlock

import (
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// releaseCall is the release of an acquisition on one node.
type releaseCall struct {
	name, owner string
	token       int64  // 0 matches any token: some nodes store a slightly different one
	publish     string // which waiters are notified; see publishMode
	until       int64  // until when a request of this owner may arrive, by the node's clock; 0 if all were answered
	failed      bool   // the attempt failed or was a break: any minimum hold ends with it
	ttl         time.Duration
}

// call makes the call. Its last two arguments are omitted if they are zero, as in most releases.
func (d releaseCall) call(c *client) redisconn.Call {
	args := []string{d.owner, redisfmt.Decimal(d.token), d.publish}
	if d.until > 0 || d.failed {
		args = append(args, redisfmt.Decimal(d.until), flag(d.failed))
	}
	return c.call(c.lua.release, d.name, args...)
}

// orphan is a lock without a holder that a node may have granted or may still grant: the result of
// a request with an unknown outcome, or of a release that failed. It is released when the node
// answers. An orphan that remains nevertheless blocks the name on this node for one TTL, but never
// counts as a held lock.
type orphan struct {
	releaseCall
	expires time.Time // the lease has ended by then
}

// maxOrphans bounds the memory for a dead node. Further orphans are left to expire.
const maxOrphans = 10_000

// orphans are the orphans of one node.
type orphans struct {
	mu      sync.Mutex // guards byOwner
	byOwner map[string]orphan
}

// add records an orphan.
func (s *orphans) add(d releaseCall) {
	d.token = 0
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.byOwner) >= maxOrphans {
		s.dropExpired(now)
	}
	if len(s.byOwner) < maxOrphans {
		// A frozen node counts the lease from when it is resumed.
		s.byOwner[d.owner] = orphan{d, now.Add(max(10*d.ttl, time.Minute))}
	}
}

// dropExpired removes expired orphans. The caller holds mu.
func (s *orphans) dropExpired(now time.Time) {
	for owner, d := range s.byOwner {
		if d.expires.Before(now) {
			delete(s.byOwner, owner)
		}
	}
}

// batch returns up to limit orphans to release, and removes those whose acquisition exists after
// all.
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
