package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/gcra"
)

// queue holds the takes of one key that are in progress in this process. One of them is the leader:
// it writes all waiting takes in one change of the record. Then another one leads. So the takes of
// one process do not conflict with each other, and many of them cost one write.
type queue struct {
	waiting  []*pending // in the order of their arrival
	progress int        // how often this or another process was seen to change the record
	version  string     // of the record when it was last read
}

// pending is a take in progress.
type pending struct {
	take   driver.RateTake
	reset  bool             // delete all counts of the key instead
	seen   int              // the queue's progress when it joined
	taken  driver.RateTaken // set by a leader; owned by the caller after result
	err    error            // like taken
	result chan bool        // receives one value: true when the take is done or has failed, false when it must lead
}

// submit makes a take, alone or with others of its key. If ctx ends while others make progress, it
// returns a driver.ErrConflict.
func (r *records) submit(ctx context.Context, p *pending) error {
	r.mu.Lock()
	q := r.queues[p.take.Key]
	if q == nil {
		q = &queue{}
		r.queues[p.take.Key] = q
		p.result <- false
	}
	q.waiting = append(q.waiting, p)
	p.seen = q.progress
	r.mu.Unlock()

	select {
	case over := <-p.result:
		if !over {
			r.lead(ctx, q, p)
		}
		return p.err
	case <-ctx.Done():
		return r.leave(ctx, q, p)
	}
}

// errPanic is the error of takes whose leader panicked.
var errPanic = fmt.Errorf("%w: the records panicked", driver.ErrUnavailable)

// lead makes all takes of a queue. p is the leader.
func (r *records) lead(ctx context.Context, q *queue, p *pending) {
	var batch []*pending
	err := errPanic
	defer func() { r.finish(q, p, batch, err) }()
	err = r.retryConflicts(ctx, p.take.Key, func(rec driver.Record) (err error) {
		defer func() {
			if err == nil || errors.Is(err, driver.ErrConflict) {
				r.progressed(q)
			}
		}()
		r.mu.Lock()
		if q.version != "" && q.version != rec.Version {
			q.progress++ // other processes also delay p
		}
		q.version = rec.Version
		batch = slices.Clone(q.waiting)
		r.mu.Unlock()
		if rec.Version == "" {
			if rec, err = r.begin(ctx, rec.Key); err != nil {
				return err
			}
		}
		return r.change(ctx, rec, func(s *gcra.State, earliest, latest time.Time) {
			for _, one := range batch {
				one.apply(s, earliest, latest)
			}
		})
	})
	switch {
	case err != nil && ctx.Err() != nil:
		batch = nil // the other takes have contexts of their own
		if r.progressSince(q, p) {
			err = contended(ctx, p.take.Key) // it spent most of its time in the queue
		}
	case batch == nil: // the records do not answer, or refuse
		r.mu.Lock()
		batch = slices.Clone(q.waiting)
		r.mu.Unlock()
	}
}

// progressed records that the record has changed, or that reading it was sufficient.
func (r *records) progressed(q *queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q.progress++
}

// progressSince reports whether there was progress since p joined the queue.
func (r *records) progressSince(q *queue, p *pending) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return q.progress > p.seen
}

// finish ends the takes of a batch and lets the next one lead.
func (r *records) finish(q *queue, p *pending, batch []*pending, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.err = err
	q.waiting = slices.DeleteFunc(q.waiting, func(one *pending) bool {
		if one == p {
			return true
		}
		in := slices.Contains(batch, one)
		if in {
			one.err = err
			one.result <- true
		}
		return in
	})
	r.next(p.take.Key, q)
}

// next makes the last take of a queue the leader. Its context probably ends last; a leader whose
// context ends soon would abort a change that all the others wait for. The caller holds mu.
func (r *records) next(key string, q *queue) {
	if len(q.waiting) == 0 {
		delete(r.queues, key)
		return
	}
	q.waiting[len(q.waiting)-1].result <- false
}

// leave ends a take whose context ended while it waited, unless it was made in the meantime.
func (r *records) leave(ctx context.Context, q *queue, p *pending) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	lead := false
	select {
	case over := <-p.result:
		if over {
			return p.err
		}
		lead = true
	default:
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(one *pending) bool { return one == p })
	if lead {
		r.next(p.take.Key, q)
	}
	if q.progress > p.seen {
		return contended(ctx, p.take.Key)
	}
	return ctx.Err()
}
