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
	maxFlights = 8    // such calls under way at once, of one queue
)

// batcher makes batches of the renewals that are due, and sends each as one call
// of Engine.Renew. A renewal waits for nothing but others of its own kind: those of
// the same part of the engine that may take about as long.
type batcher struct {
	send func(*flight)             // calls the engine and returns when it has answered
	part func(driver.Lease) string // which part of the engine answers for a lease

	mu     sync.Mutex // guards queues, and renewal of each lock
	queues map[queueKey]*renewQueue
}

// queueKey says which renewals may share a call of the engine.
type queueKey struct {
	part  string
	limit int // the attempt limit, as a power of two: a call takes no longer than its shortest
}

// renewQueue holds renewals of one kind that are due.
type renewQueue struct {
	due     schedule.Queue[*Lock] // the earliest deadline first
	flights int                   // calls of the engine under way
}

// flight is one call of Engine.Renew.
type flight struct {
	ctx    context.Context // ends with the attempt limit, or when all locks have ended
	cancel context.CancelFunc
	locks  []*Lock
	leases []driver.Lease
	stand  int // how many of the locks have not ended; guarded by batcher.mu
}

// renewal is what the batcher knows about a lock.
type renewal struct {
	place  schedule.Entry[*Lock]
	limit  time.Duration // how long the attempt may take
	queue  *renewQueue   // where it waits; nil while it does not
	flight *flight       // what carries it; nil while nothing does
	ended  bool          // the hold is over: never send it again
}

// dueRenewal is a lock that asked for a renewal.
type dueRenewal struct {
	lock *Lock
	act  hold.Action
}

func newBatcher(engine driver.Engine, send func(*flight)) *batcher {
	b := &batcher{send: send, queues: map[queueKey]*renewQueue{}}
	b.part = func(driver.Lease) string { return "" }
	if p, ok := engine.(driver.Parter); ok {
		b.part = p.Part
	}
	return b
}

// add sends renewals, at once unless as many calls as may be are under way.
func (b *batcher) add(due []dueRenewal, now hold.Instant) {
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

// renewalOf returns what the batcher knows about a lock. The caller holds the
// batcher's mu.
func renewalOf(l *Lock) *renewal {
	if l.renewal == nil {
		l.renewal = &renewal{place: schedule.Entry[*Lock]{Item: l}}
	}
	return l.renewal
}

// launch sends what is queued, as far as there is room. The caller holds mu.
func (b *batcher) launch(key queueKey) {
	q := b.queues[key]
	for q != nil && q.flights < maxFlights && q.due.Len() > 0 {
		q.flights++
		go b.run(key, q, q.take()) // ends when nothing is queued
	}
}

// run sends one batch after the other until nothing is queued.
func (b *batcher) run(key queueKey, q *renewQueue, f *flight) {
	done := false
	defer unless(&done, func() { go b.run(key, q, b.next(key, q, f)) }) // a hook ended the goroutine; ends as this one would
	for f != nil {
		b.send(f)
		f = b.next(key, q, f)
	}
	done = true
}

// next ends a flight, and makes the next one of what is queued; nil if nothing is.
func (b *batcher) next(key queueKey, q *renewQueue, f *flight) *flight {
	f.cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range f.locks {
		if l.renewal.flight == f {
			l.renewal.flight = nil // or a lock that is held would keep all the others in memory
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

// take makes a flight of the most urgent renewals. The caller holds the batcher's mu.
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

// drop forgets the renewal of a lock that has ended. A call that nobody needs any
// more is given up.
func (b *batcher) drop(l *Lock) {
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
