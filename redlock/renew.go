package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/quorum"
	"github.com/fencelock/fencelock/redislock"
)

// renewals is one batch on its way to all nodes.
type renewals struct {
	engine *Engine
	leases []driver.Lease
	sent   time.Time
	each   []*quorum.Renewal
	causes []causes
	open   int // leases that are not decided
}

// batch is what one node said of all leases.
type batch struct {
	node    int
	replies []redislock.Reply
}

// Renew extends acquisitions. Each node gets all of them in one pipeline, and
// Renew returns when a majority has decided every one. A node that lost a lock
// which a majority kept is given it back.
func (e *Engine) Renew(ctx context.Context, leases []driver.Lease) []error {
	if err := e.begin(); err != nil {
		errs := make([]error, len(leases))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	defer e.tasks.Done()
	if len(leases) == 0 {
		return nil
	}
	return e.renew(ctx, leases)
}

func (e *Engine) renew(ctx context.Context, leases []driver.Lease) []error {
	r := &renewals{engine: e, leases: leases, causes: make([]causes, len(leases)), open: len(leases), sent: time.Now()}
	for _, l := range leases {
		renewal := quorum.NewRenewal(e.terms(l.Mode, l.TTL), instant(r.sent))
		if sent, ok := e.holds.counts(l.Owner); ok {
			renewal.Extends(instant(sent))
		}
		r.each = append(r.each, renewal)
	}
	answers := r.send()
	for heard := 0; heard < len(e.nodes); heard++ {
		select {
		case b := <-answers:
			r.onBatch(b)
		case <-ctx.Done():
			return r.errors(ctx.Err())
		}
		if r.open == 0 {
			errs := r.errors(nil)
			e.tasks.Go(func() { // ends with the limit of the requests
				for heard++; heard < len(e.nodes); heard++ {
					r.onBatch(<-answers) // one may have to be repaired
				}
			})
			return errs
		}
	}
	return r.errors(nil)
}

// limit is how long one node may take for all leases.
func (r *renewals) limit() time.Duration {
	limit := time.Duration(len(r.leases)) * 2 * time.Millisecond
	for _, l := range r.leases {
		limit = max(limit, r.engine.cfg.limit(l.TTL))
	}
	return limit
}

// send asks all nodes about all leases.
func (r *renewals) send() <-chan batch {
	e := r.engine
	calls := make([]redislock.Call, len(r.leases))
	for j, l := range r.leases {
		// Of a lock that is known here, the owner is enough: some nodes store a
		// token a little off.
		calls[j] = e.call(e.lua.renew, l.Name, l.Owner, decimal(l.Token), flag(e.holds.has(l.Owner) && !e.holds.foreign(l)), millis(l.TTL))
	}
	answers, limit := make(chan batch, len(e.nodes)), r.limit()
	for _, n := range e.nodes {
		e.tasks.run(func() { // ends when the node has answered, or with the limit
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			answers <- batch{n.index, n.ask(ctx, calls...)}
		})
	}
	return answers
}

// onBatch takes what one node said.
func (r *renewals) onBatch(b batch) {
	now := instant(time.Now())
	for j, reply := range b.replies {
		before := r.each[j].Result()
		s, server := r.standing(j, b.node, reply)
		repair := r.each[j].Heard(b.node, s, server, now)
		if before == quorum.Open && r.each[j].Result() != quorum.Open {
			r.open--
			r.decided(j)
		}
		for _, i := range repair {
			r.engine.nodes[i].repair(r.leases[j], r.sent)
		}
	}
}

// decided notes how the renewal of lease j ended.
func (r *renewals) decided(j int) {
	e, l := r.engine, r.leases[j]
	switch result := r.each[j].Result(); {
	case result == quorum.Kept:
		if e.holds.extended(l.Owner, r.sent) {
			e.note(nameindex.Noted{Owner: l.Owner, Name: l.Name, Life: l.TTL + nameindex.Lag})
		}
	case result == quorum.Gone && e.holds.has(l.Owner) && !e.holds.foreign(l):
		e.discard(l)
	}
}

// standing reads what a node said of lease j, and which server it is.
func (r *renewals) standing(j, node int, reply redislock.Reply) (quorum.Standing, uint64) {
	n := r.engine.nodes[node]
	ok, server := affirmed(reply)
	switch {
	case r.engine.holds.foreign(r.leases[j]):
		return quorum.Taken, 0
	case reply.Err != nil:
		r.causes[j].add(n, reply.Err)
		return quorum.Silent, 0
	case ok:
		if err := n.recognise(server); err != nil {
			r.causes[j].add(n, err)
			return quorum.Silent, 0
		}
		return quorum.Renewed, server
	case reply.Text == "free":
		return quorum.Free, 0
	default:
		return quorum.Taken, 0
	}
}

// repair gives the node a lock back that it lost, in the background, and before the
// lease that counts from sent is over.
func (n *node) repair(l driver.Lease, sent time.Time) {
	e := n.engine
	h := e.holds.get(l.Owner)
	if h == nil {
		return // released meanwhile, or not ours
	}
	limit := min(e.cfg.limit(l.TTL), l.TTL-drift(l.TTL)-time.Since(sent))
	call := e.call(e.lua.repair, l.Name, l.Owner, decimal(l.Token), letter(l.Mode), millis(l.TTL), decimal(n.by(limit)), h.desc)
	e.tasks.Go(func() { // ends when the node has answered, or with the limit
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		switch r := n.ask(ctx, call)[0]; {
		case unknown(r.Err):
			h.asks.gaveUp(n, limit)
			n.noteOrphan(releaseCall{name: l.Name, owner: l.Owner, until: n.by(limit), ttl: l.TTL})
		case r.Err == nil && !e.holds.has(l.Owner): // it may have run after the release
			n.free(releaseCall{name: l.Name, owner: l.Owner, ttl: l.TTL})
		}
	})
}

// errors are the results so far.
func (r *renewals) errors(cause error) []error {
	errs := make([]error, len(r.leases))
	for j, l := range r.leases {
		switch r.each[j].Result() {
		case quorum.Kept:
		case quorum.Gone:
			errs[j] = fmt.Errorf("%w: %q", driver.ErrNotHeld, l.Name)
		case quorum.Failed:
			errs[j] = r.failed(j)
		case quorum.Open:
			errs[j] = unavailable(errors.Join(cause, r.causes[j].err()))
		}
	}
	return errs
}

// failed is what became of lease j, of which no majority said anything in time.
// If it has run out nobody may believe in it, and what stands of it is given back.
func (r *renewals) failed(j int) error {
	e, l := r.engine, r.leases[j]
	if sent, ok := e.holds.counts(l.Owner); ok && instant(time.Now()).Since(instant(sent)) >= l.TTL-drift(l.TTL) {
		e.discard(l)
		return fmt.Errorf("%w: %q: the lease had run out before a majority answered", driver.ErrNotHeld, l.Name)
	}
	return r.causes[j].err()
}
