package fencelock

import (
	"context"
	"math/bits"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/schedule"
)

const (
	maxBatch   = 1000 // leases in one call of Engine.Renew
	maxFlights = 8    // concurrent calls of Engine.Renew for one queue
)

// renewalBatcher collects the renewals that are due and sends each batch as one call of Engine.Renew. A
// batch contains only leases that the same part of the engine serves and that allow about the same
// time, so no renewal waits for a slower kind.
type renewalBatcher struct {
	send func(*flight)             // calls the engine and returns after the answer
	part func(driver.Lease) string // the part of the engine that serves a lease, such as a node of a cluster

	mu     sync.Mutex // guards queues, and Lock.renewal
	queues map[queueKey]*renewQueue
}

// queueKey identifies renewals that may share a call of the engine.
type queueKey struct {
	part  string
	limit int // bits.Len64 of the time limit: a call is bounded by its shortest limit
}

// renewQueue holds due renewals of one kind.
type renewQueue struct {
	due     schedule.Queue[*Lock] // earliest deadline first
	flights int                   // calls of the engine in progress
}

// flight is one call of Engine.Renew.
type flight struct {
	ctx    context.Context // ends at the time limit, or when all its locks have ended
	cancel context.CancelFunc
	locks  []*Lock
	leases []driver.Lease
	stand  int // how many of the locks have not ended; guarded by renewalBatcher.mu
}

// renewal is the batcher's state of one lock.
type renewal struct {
	place  schedule.Entry[*Lock]
	limit  time.Duration // how long the call may take
	queue  *renewQueue   // the queue that it waits in, or nil
	flight *flight       // the call that carries it, or nil
	ended  bool          // the hold is over: do not send it again
}

// dueRenewal is a lock that needs a renewal.
type dueRenewal struct {
	lock *Lock
	act  hold.Action
}

func newRenewalBatcher(engine driver.Engine, send func(*flight)) *renewalBatcher {
	b := &renewalBatcher{send: send, queues: map[queueKey]*renewQueue{}}
	b.part = func(driver.Lease) string { return "" }
	if p, ok := engine.(driver.Parter); ok {
		b.part = p.Part
	}
	return b
}

// add queues renewals and sends them at once, unless the limit of concurrent calls is reached.
func (b *renewalBatcher) add(due []dueRenewal, now hold.Instant) {
	keys := make([]queueKey, len(due))
	for i, d := range due {
		keys[i] = queueKey{part: b.part(d.lock.lease), limit: bits.Len64(uint64(d.act.Limit))}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, d := range due {
		r := renewalOf(d.lock)
		if r.ended {
			continue
		}
		q := b.queues[keys[i]]
		if q == nil {
			q = &renewQueue{}
			b.queues[keys[i]] = q
		}
		r.limit, r.queue = d.act.Limit, q
		q.due.Set(&r.place, now.Mono+d.act.Left)
	}
	for i := range due {
		b.launch(keys[i])
	}
}

// renewalOf returns the batcher's state of a lock. The caller holds the batcher's mu.
func renewalOf(l *Lock) *renewal {
	if l.renewal == nil {
		l.renewal = &renewal{place: schedule.Entry[*Lock]{Item: l}}
	}
	return l.renewal
}

// launch starts calls for queued renewals, up to the limit. The caller holds mu.
func (b *renewalBatcher) launch(key queueKey) {
	q := b.queues[key]
	for q != nil && q.flights < maxFlights && q.due.Len() > 0 {
		q.flights++
		go b.run(key, q, q.take()) // ends when the queue is empty
	}
}

// run sends batches until the queue is empty.
func (b *renewalBatcher) run(key queueKey, q *renewQueue, f *flight) {
	done := false
	defer undoUnless(&done, func() { go b.run(key, q, b.next(key, q, f)) }) // a hook called runtime.Goexit
	for f != nil {
		b.send(f)
		f = b.next(key, q, f)
	}
	done = true
}

// next ends a call and returns the next one, or nil if the queue is empty.
func (b *renewalBatcher) next(key queueKey, q *renewQueue, f *flight) *flight {
	f.cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range f.locks {
		if l.renewal.flight == f {
			l.renewal.flight = nil // otherwise one lock that is still held would keep all the others in memory
		}
	}
	if q.due.Len() > 0 {
		return q.take()
	}
	if q.flights--; q.flights == 0 {
		delete(b.queues, key)
	}
	return nil
}

// take makes a call for the most urgent renewals. The caller holds the batcher's mu.
func (q *renewQueue) take() *flight {
	n := min(q.due.Len(), maxBatch)
	f := &flight{locks: make([]*Lock, n), leases: make([]driver.Lease, n), stand: n}
	limit := time.Duration(0)
	for i := range f.locks {
		l := q.due.Pop().Item
		f.locks[i], f.leases[i] = l, l.lease
		r := l.renewal
		if limit == 0 || r.limit < limit {
			limit = r.limit
		}
		r.queue, r.flight = nil, f
	}
	f.ctx, f.cancel = context.WithTimeout(context.Background(), limit)
	return f
}

// drop removes the renewal of a lock that has ended. It cancels a call whose locks have all ended.
func (b *renewalBatcher) drop(l *Lock) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := renewalOf(l)
	r.ended = true
	if r.queue != nil {
		r.queue.due.Close(&r.place)
		r.queue = nil
	}
	if f := r.flight; f != nil {
		r.flight = nil
		if f.stand--; f.stand == 0 {
			f.cancel()
		}
	}
}
