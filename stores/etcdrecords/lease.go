package etcdrecords

import (
	"context"
	"math/bits"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// leases are the leases of etcd that records of this process share. A lease for each record would
// remain in etcd until its TTL has passed, also when the record has been rewritten long before.
type leases struct {
	mu     sync.Mutex // guards shared
	shared map[int64]lease
}

// lease is a lease of etcd. Records whose TTL is at most ttl seconds may be attached until a moment.
type lease struct {
	id    clientv3.LeaseID
	ttl   int64
	until time.Time
}

// shareable rounds a TTL up to whole seconds with six significant bits. It also returns for how many
// seconds a lease for this TTL is shared.
func shareable(ttl time.Duration) (seconds, share int64) {
	seconds = int64((ttl + time.Second - 1) / time.Second)
	share = 1 << max(0, bits.Len64(uint64(seconds))-6)
	return (seconds + share - 1) / share * share, share
}

// lease returns a lease that ends after ttl, or that of no lease if ttl is 0.
func (r *Records) lease(ctx context.Context, ttl time.Duration) (lease, error) {
	if ttl == 0 {
		return lease{}, nil
	}
	seconds, share := shareable(ttl)
	now := time.Now()
	if l, ok := r.leases.find(seconds, now); ok {
		return l, nil
	}
	l := lease{ttl: seconds, until: now.Add(time.Duration(share) * time.Second)}
	err := r.call(ctx, func(ctx context.Context) error {
		granted, err := r.client.Grant(ctx, seconds+share)
		if err == nil {
			l.id = granted.ID
		}
		return err
	})
	if err == nil {
		r.leases.keep(l)
	}
	return l, err
}

// find returns the lease for a TTL. The monotonic clock stops while this host is suspended, and the
// wall clock can be set: neither must have passed.
func (s *leases) find(ttl int64, now time.Time) (lease, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.shared[ttl]
	return l, ok && now.Before(l.until) && now.Round(0).Before(l.until.Round(0))
}

// keep stores a lease, and removes those that are not shared any more.
func (s *leases) keep(l lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ttl, old := range s.shared {
		if time.Now().After(old.until) {
			delete(s.shared, ttl)
		}
	}
	s.shared[l.ttl] = l
}

// drop removes a lease.
func (s *leases) drop(l lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared[l.ttl].id == l.id {
		delete(s.shared, l.ttl)
	}
}
