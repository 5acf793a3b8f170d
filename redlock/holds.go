package redlock

import (
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// held is a granted acquisition of this process.
type held struct {
	lease driver.Lease
	desc  string
	sent  time.Time // from when the lease counts; guarded by holdings.mu
	lost  func(cause error)
	asks  asks // of the request
}

// holdings are the granted acquisitions of this process.
type holdings struct {
	mu      sync.Mutex // guards all below, and sent of each
	byOwner map[string]*held
	sweepAt int // how many make it worth to look for stale ones
}

// add puts an acquisition in.
func (s *holdings) add(h *held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byOwner[h.lease.Owner] = h
	if len(s.byOwner) > s.sweepAt {
		s.sweep(time.Now())
		s.sweepAt = max(1000, 2*len(s.byOwner))
	}
}

// sweep forgets the acquisitions that were given up without a word, long after
// their leases. The caller holds mu.
func (s *holdings) sweep(now time.Time) {
	for owner, h := range s.byOwner {
		if now.Sub(h.sent) > 2*h.lease.TTL {
			delete(s.byOwner, owner)
		}
	}
}

// get returns what is known of an acquisition, nil if it is none of ours.
func (s *holdings) get(owner string) *held {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byOwner[owner]
}

func (s *holdings) has(owner string) bool { return s.get(owner) != nil }

// whileHeld calls do if an acquisition of ours stands, which is not released before do
// returns. do must not block.
func (s *holdings) whileHeld(owner string, do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byOwner[owner] != nil {
		do()
	}
}

// remove forgets an acquisition, and returns what was known of it, nil if nothing.
func (s *holdings) remove(owner string) *held {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.byOwner[owner]
	delete(s.byOwner, owner)
	return h
}

// foreign reports whether a lease names an acquisition with another's token.
// Nodes go by the owner alone: some store a token a little off.
func (s *holdings) foreign(l driver.Lease) bool {
	h := s.get(l.Owner)
	return h != nil && (h.lease.Token != l.Token || h.lease.Name != l.Name)
}

// counts returns from when a lease counts, and whether that is known.
func (s *holdings) counts(owner string) (sent time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.byOwner[owner]; h != nil {
		return h.sent, true
	}
	return sent, false
}

// extend notes from when a renewed lease counts, and reports whether it is longer now.
// Renewals may overtake one another, and no lease gets shorter by an old one.
func (s *holdings) extend(owner string, sent time.Time) (longer bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.byOwner[owner]
	if longer = h != nil && h.sent.Before(sent); longer {
		h.sent = sent
	}
	return longer
}
