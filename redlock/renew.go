package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/quorum"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// renewer extends acquisitions and restores them on nodes that have lost them.
type renewer struct {
	*client
	set      *nodeSet
	holds    *holdings
	names    *nameIndex
	releaser *releaser
}

// renewals is one batch, sent to all nodes.
type renewals struct {
	*renewer
	leases     []driver.Lease
	sent       time.Time
	each       []*quorum.Renewal
	nodeErrors []nodeErrors
	open       int // number of undecided leases
}

// batch is the replies of one node to all leases.
type batch struct {
	node    int
	replies []redisconn.Reply
}

// Renew extends acquisitions; see [Engine.Renew]. Replies after the last lease is decided are
// handled in the background, because a node may need a repair.
func (q *renewer) Renew(ctx context.Context, leases []driver.Lease) []error {
	r := &renewals{renewer: q, leases: leases, nodeErrors: make([]nodeErrors, len(leases)), open: len(leases), sent: time.Now()}
	for _, l := range leases {
		renewal := quorum.NewRenewal(q.set.terms(l.Mode, l.TTL), instant(r.sent))
		if sent, ok := q.holds.counts(l.Owner); ok {
			renewal.Extends(instant(sent))
		}
		r.each = append(r.each, renewal)
	}
	answers := r.send()
	for received := 0; received < len(q.set.nodes); received++ {
		select {
		case b := <-answers:
			r.onBatch(b)
		case <-ctx.Done():
			return r.results(ctx.Err())
		}
		if r.open == 0 {
			errs := r.results(nil)
			q.tasks.Spawn(func() { // ends with the limit of the requests
				for received++; received < len(q.set.nodes); received++ {
					r.onBatch(<-answers)
				}
			})
			return errs
		}
	}
	return r.results(nil)
}

// limit returns how long one node may take for all leases: 2 ms per lease, but at least as long as
// for one of them.
func (r *renewals) limit() time.Duration {
	limit := time.Duration(len(r.leases)) * 2 * time.Millisecond
	for _, l := range r.leases {
		limit = max(limit, r.cfg.limit(l.TTL))
	}
	return limit
}

// send sends the renewals of all leases to all nodes.
func (r *renewals) send() <-chan batch {
	calls := make([]redisconn.Call, len(r.leases))
	for j, l := range r.leases {
		// For acquisitions of this process compare the owner only: some nodes store a slightly
		// different token.
		calls[j] = r.call(r.lua.renew, l.Name, l.Owner, redisfmt.Decimal(l.Token), flag(r.holds.has(l.Owner) && !r.holds.foreign(l)), redisfmt.Millis(l.TTL))
	}
	answers, limit := make(chan batch, len(r.set.nodes)), r.limit()
	for _, n := range r.set.nodes {
		r.tasks.Spawn(func() { // ends when the node has answered, or with the limit
			answers <- batch{n.index, n.ask(redisconn.WithDeadline(context.Background(), limit), calls...)}
		})
	}
	return answers
}

// onBatch handles the replies of one node.
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
			r.restore(r.set.nodes[i], r.leases[j])
		}
	}
}

// decided handles the decision on lease j. A lost lease is discarded, which releases what a
// minority still has of it.
func (r *renewals) decided(j int) {
	l := r.leases[j]
	switch result := r.each[j].Result(); {
	case result == quorum.Kept:
		if r.holds.extend(l.Owner, r.sent) {
			r.names.Add(nameindex.Noted{Owner: l.Owner, Name: l.Name, Life: l.TTL + nameindex.Lag})
		}
	case result == quorum.Gone && r.holds.has(l.Owner) && !r.holds.foreign(l):
		r.releaser.discard(l)
	}
}

// standing parses a node's reply about lease j. The second result identifies the server.
func (r *renewals) standing(j, node int, reply redisconn.Reply) (quorum.Standing, uint64) {
	n := r.set.nodes[node]
	ok, server := affirmed(reply)
	switch {
	case r.holds.foreign(r.leases[j]):
		return quorum.Taken, 0
	case reply.Err != nil:
		r.nodeErrors[j].add(n, reply.Err)
		return quorum.Silent, 0
	case ok:
		if err := r.set.recognise(n, server); err != nil {
			r.nodeErrors[j].add(n, err)
			return quorum.Silent, 0
		}
		return quorum.Renewed, server
	case reply.Text == "free":
		return quorum.Free, 0
	default:
		return quorum.Taken, 0
	}
}

// restore stores a lock again on a node that has lost it, in the background and before the lease
// counted from the batch ends. If the lock is released meanwhile, whatever the node stored is
// released too.
func (r *renewals) restore(n *node, l driver.Lease) {
	h := r.holds.get(l.Owner)
	if h == nil {
		return // released meanwhile, or not of this process
	}
	limit, left := r.cfg.limit(l.TTL), l.TTL-drift(l.TTL)-time.Since(r.sent)
	if left < min(limit, l.TTL/4) {
		return // too little time for an answer; the next renewal follows soon
	}
	limit = min(limit, left)
	r.tasks.Spawn(func() { // ends when the node has answered, or with the limit
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		by, err := n.notAfter(ctx, limit)
		if err != nil {
			return
		}
		call := r.call(r.lua.repair, l.Name, l.Owner, redisfmt.Decimal(l.Token), redisfmt.Letter(l.Mode), redisfmt.Millis(l.TTL), redisfmt.Decimal(by), h.desc)
		switch reply := n.ask(ctx, call)[0]; {
		case unknown(reply.Err):
			h.inflight.gaveUp(n, limit)
			n.noteOrphan(releaseCall{name: l.Name, owner: l.Owner, until: n.clock.by(limit), ttl: l.TTL})
		case reply.Err == nil && !r.holds.has(l.Owner): // it may have run after the release
			n.free(releaseCall{name: l.Name, owner: l.Owner, ttl: l.TTL})
		}
	})
}

// results returns the results so far, one for each lease.
func (r *renewals) results(cause error) []error {
	errs := make([]error, len(r.leases))
	for j, l := range r.leases {
		switch r.each[j].Result() {
		case quorum.Kept:
		case quorum.Gone:
			errs[j] = fmt.Errorf("%w: %q", driver.ErrNotHeld, l.Name)
		case quorum.Failed:
			errs[j] = r.undecided(j)
		case quorum.Open:
			errs[j] = unavailable(errors.Join(cause, r.nodeErrors[j].joined()))
		}
	}
	return errs
}

// undecided returns the error for lease j, which no majority answered in time. If the lease has
// expired, it is discarded.
func (r *renewals) undecided(j int) error {
	l := r.leases[j]
	if sent, ok := r.holds.counts(l.Owner); ok && instant(time.Now()).Since(instant(sent)) >= l.TTL-drift(l.TTL) {
		r.releaser.discard(l)
		return fmt.Errorf("%w: %q: the lease expired before a majority answered", driver.ErrNotHeld, l.Name)
	}
	return r.nodeErrors[j].joined()
}
