package redlock

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
)

// releaser ends acquisitions on all nodes.
type releaser struct {
	*client
	set   *nodeSet
	holds *holdings
}

// Release ends an acquisition; see [Engine.Release].
func (q *releaser) Release(ctx context.Context, l driver.Lease) error {
	if q.holds.foreign(l) {
		return fmt.Errorf("%w: %q", driver.ErrNotHeld, l.Name)
	}
	known := q.holds.has(l.Owner)
	if known { // the owner is enough: some nodes store a token a little off
		l.Token = 0
	}
	// sendRelease forgets the acquisition, so that it is known to one release only.
	return q.released(ctx, l, known, q.sendRelease(l, false))
}

// released waits for a majority of the answers to a release. A minority that does not
// answer is told when it is back, and nobody waits for that. A node that has run a release
// before has run this one, which came twice, if the acquisition was known until now.
func (q *releaser) released(ctx context.Context, l driver.Lease, known bool, answers <-chan reply) error {
	freed, gone := 0, 0
	var why causes
	for heard := 0; heard < len(q.set.nodes) && freed < q.set.need && gone < q.set.need; heard++ {
		select {
		case r := <-answers:
			switch {
			case r.Err != nil:
				why.add(q.set.nodes[r.node], r.Err)
			case r.Text == "ok", r.Text == "freed" && known:
				freed++
			default:
				gone++
			}
		case <-ctx.Done():
			return unavailable(ctx.Err())
		}
	}
	switch {
	case gone >= q.set.need:
		return fmt.Errorf("%w: %q", driver.ErrNotHeld, l.Name)
	case freed+gone < q.set.need:
		return why.joined()
	}
	// Some may have lost it. Those who share the lock next take the smallest token
	// on any node for their floor, so the slow nodes are given a moment.
	if l.Mode == driver.Shared {
		q.waitBriefly(answers, freed+gone+len(why.errs))
	}
	return nil
}

// waitBriefly waits for the rest of the answers, but not for long.
func (q *releaser) waitBriefly(answers <-chan reply, heard int) {
	limit := time.NewTimer(50 * time.Millisecond)
	defer limit.Stop()
	for ; heard < len(q.set.nodes); heard++ {
		select {
		case <-answers:
		case <-limit.C:
			return
		}
	}
}

// sendRelease forgets an acquisition, and ends it on all nodes, in the background; and any
// minimum hold of the name with it, if opens.
func (q *releaser) sendRelease(l driver.Lease, opens bool) <-chan reply {
	answers := make(chan reply, len(q.set.nodes))
	// From here on the acquisition is nobody's: a renewal under way does not restore it,
	// and a late answer to its attempt is not taken for a grant.
	under := make(asks, len(q.set.nodes))
	if h := q.holds.remove(l.Owner); h != nil {
		under = h.asks
	}
	q.set.broadcast(q.set.nodes, q.cfg.endLimit(l.TTL), answers, under.after(func(ctx context.Context, n *node) redisconn.Reply {
		return n.release(ctx, releaseCall{
			name: l.Name, owner: l.Owner, token: l.Token, ttl: l.TTL,
			publish: q.publishMode(n), until: under.until(n), failed: opens,
		})
	}))
	return answers
}

// discard gives up an acquisition that is lost, and frees what stands of it.
func (q *releaser) discard(l driver.Lease) {
	l.Token = 0
	q.sendRelease(l, false)
}

// publishMode says whether a node is to tell waiters of a release. They listen to the
// first node that answers; two tell, should not all agree on which that is.
func (q *releaser) publishMode(n *node) string {
	before := 0
	for _, o := range q.set.nodes[:n.index] {
		if o.out.Load() == nil {
			before++
		}
	}
	if before < 2 {
		return "2"
	}
	return "1"
}
