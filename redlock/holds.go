package redlock

import (
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// held is a granted acquisition of this process.
type held struct {
	lease    driver.Lease
	desc     string
	sent     time.Time // start of the current lease; guarded by holdings.mu
	lost     func(cause error)
	inflight inflight // calls of its request
}

// holdings are the granted acquisitions of this process.
type holdings struct {
	mu      sync.Mutex // guards all below, and sent of each acquisition
	byOwner map[string]*held
	sweepAt int // number of acquisitions at which to look for stale ones
}

// add adds an acquisition.
func (s *holdings) add(h *held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byOwner[h.lease.Owner] = h
	if len(s.byOwner) > s.sweepAt {
		s.sweep(time.Now())
		s.sweepAt = max(1000, 2*len(s.byOwner))
	}
}

// sweep removes acquisitions that were abandoned without a release, long after their leases. The
// caller holds mu.
func (s *holdings) sweep(now time.Time) {
	for owner, h := range s.byOwner {
		if now.Sub(h.sent) > 2*h.lease.TTL {
			delete(s.byOwner, owner)
		}
	}
}

// get returns an acquisition of this process, nil if there is none.
func (s *holdings) get(owner string) *held {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byOwner[owner]
}

func (s *holdings) has(owner string) bool { return s.get(owner) != nil }

// whileHeld calls do if the acquisition exists. It is not released before do returns. do must not
// block.
func (s *holdings) whileHeld(owner string, do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byOwner[owner] != nil {
		do()
	}
}

// remove removes an acquisition and returns it, nil if there was none.
func (s *holdings) remove(owner string) *held {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.byOwner[owner]
	delete(s.byOwner, owner)
	return h
}

// foreign reports whether a lease has another token or name than this process's acquisition of that
// owner. Nodes compare the owner only, because some store a slightly different token.
func (s *holdings) foreign(l driver.Lease) bool {
	h := s.get(l.Owner)
	return h != nil && (h.lease.Token != l.Token || h.lease.Name != l.Name)
}

// counts returns the start of a lease, and whether it is known.
func (s *holdings) counts(owner string) (sent time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.byOwner[owner]; h != nil {
		return h.sent, true
	}
	return sent, false
}

// extend records the start of a renewed lease, and reports whether that is later than before.
// Renewals may overtake one another, so a lease must not get shorter.
func (s *holdings) extend(owner string, sent time.Time) (longer bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.byOwner[owner]
	if longer = h != nil && h.sent.Before(sent); longer {
		h.sent = sent
	}
	return longer
}
