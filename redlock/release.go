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
	if known { // compare the owner only: some nodes store a slightly different token
		l.Token = 0
	}
	// sendRelease removes the acquisition, so that only one release finds it known.
	return q.released(ctx, l, known, q.sendRelease(l, false))
}

// released waits for a majority of the replies to a release. The others release when they answer
// again, without delaying the caller. A node that had already executed a release counts as "ok" if
// the acquisition was known, because the same call may arrive twice.
func (q *releaser) released(ctx context.Context, l driver.Lease, known bool, answers <-chan reply) error {
	freed, gone := 0, 0
	var why nodeErrors
	for received := 0; received < len(q.set.nodes) && freed < q.set.need && gone < q.set.need; received++ {
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
	// Some nodes may have lost the lock. The next requests that share it use the lowest token on
	// any node as their floor, so wait briefly for slow nodes.
	if l.Mode == driver.Shared {
		q.waitBriefly(answers, freed+gone+len(why.errs))
	}
	return nil
}

// waitBriefly waits up to 50 ms for the remaining replies.
func (q *releaser) waitBriefly(answers <-chan reply, received int) {
	limit := time.NewTimer(50 * time.Millisecond)
	defer limit.Stop()
	for ; received < len(q.set.nodes); received++ {
		select {
		case <-answers:
		case <-limit.C:
			return
		}
	}
}

// sendRelease removes an acquisition and ends it on all nodes, in the background. With opens it
// also ends any minimum hold of the name.
func (q *releaser) sendRelease(l driver.Lease, opens bool) <-chan reply {
	answers := make(chan reply, len(q.set.nodes))
	// From here on the acquisition has no holder: a renewal in progress does not restore it, and a
	// late reply to its attempt does not count as a grant.
	under := make(inflight, len(q.set.nodes))
	if h := q.holds.remove(l.Owner); h != nil {
		under = h.inflight
	}
	q.set.broadcast(q.set.nodes, q.cfg.endLimit(l.TTL), answers, under.after(func(ctx context.Context, n *node) redisconn.Reply {
		return n.release(ctx, releaseCall{
			name: l.Name, owner: l.Owner, token: l.Token, ttl: l.TTL,
			publish: q.publishMode(n), until: under.until(n), failed: opens,
		})
	}))
	return answers
}

// discard gives up a lost acquisition and releases what is left of it.
func (q *releaser) discard(l driver.Lease) {
	l.Token = 0
	q.sendRelease(l, false)
}

// publishMode returns which waiters a node notifies of a release. Waiters listen to the first node
// that is not left out. The first two nodes publish, because clients may disagree about which that
// is.
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
