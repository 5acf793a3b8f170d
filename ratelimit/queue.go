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

// queue is the takes of one key that are under way in this process. One of them leads: it
// makes all takes that wait in one change of the record, and then another one leads. So the
// takes of a process do not conflict with one another, and many cost no more than one.
type queue struct {
	waiting  []*pending // in the order in which they came
	progress int        // how often this process, or another one, was seen to change the record
	version  string     // of the record, when it was read last
}

// pending is a take under way.
type pending struct {
	take  driver.RateTake
	reset bool             // it forgets all takes of the key of take
	seen  int              // the progress of the queue when it joined
	taken driver.RateTaken // set by a leader; the caller's after turn
	err   error            // as taken
	turn  chan bool        // has one value in the end: true if the take was made, or has failed, and false to lead
}

// submit makes a take, alone or with others of its key. If ctx ends while others make
// progress the error is a driver.ErrConflict.
func (r *records) submit(ctx context.Context, p *pending) error {
	r.mu.Lock()
	q := r.queues[p.take.Key]
	if q == nil {
		q = &queue{}
		r.queues[p.take.Key] = q
		p.turn <- false
	}
	q.waiting = append(q.waiting, p)
	p.seen = q.progress
	r.mu.Unlock()

	select {
	case over := <-p.turn:
		if !over {
			r.lead(ctx, q, p)
		}
		return p.err
	case <-ctx.Done():
		return r.leave(ctx, q, p)
	}
}

// errPanic is the error of takes whose leader panics.
var errPanic = fmt.Errorf("%w: the records have panicked", driver.ErrUnavailable)

// lead makes all takes of a queue, whose first one is p.
func (r *records) lead(ctx context.Context, q *queue, p *pending) {
	var batch []*pending
	err := errPanic
	defer func() { r.finish(q, p, batch, err) }()
	err = r.insist(ctx, p.take.Key, func(rec driver.Record) (err error) {
		defer func() {
			if err == nil || errors.Is(err, driver.ErrConflict) {
				r.progressed(q)
			}
		}()
		r.mu.Lock()
		if q.version != "" && q.version != rec.Version {
			q.progress++ // others keep p from its turn in the records too
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
		batch = nil // the others have contexts of their own
		if r.progressSince(q, p) {
			err = contended(ctx, p.take.Key) // most of its time was spent in the queue
		}
	case batch == nil: // the records do not answer, or refuse
		r.mu.Lock()
		batch = slices.Clone(q.waiting)
		r.mu.Unlock()
	}
}

// progressed notes that the record was seen to change, or that what it says was enough.
func (r *records) progressed(q *queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q.progress++
}

// progressSince reports whether the record was seen to change since p joined the queue.
func (r *records) progressSince(q *queue, p *pending) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return q.progress > p.seen
}

// finish ends the takes of a batch, and lets the next one lead.
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
			one.turn <- true
		}
		return in
	})
	r.next(p.take.Key, q)
}

// next lets the last of a queue lead, whose context is likely to last the longest: one that
// ends soon would break off a change that all the others wait for too. The caller holds mu.
func (r *records) next(key string, q *queue) {
	if len(q.waiting) == 0 {
		delete(r.queues, key)
		return
	}
	q.waiting[len(q.waiting)-1].turn <- false
}

// leave ends a take whose context has ended while it waited, unless it was made meanwhile.
func (r *records) leave(ctx context.Context, q *queue, p *pending) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	lead := false
	select {
	case over := <-p.turn:
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
