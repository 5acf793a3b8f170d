package redlock

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock"
)

// Release ends an acquisition on all nodes, and returns when a majority has done
// so. Nodes that cannot be reached are told when they are back.
func (e *Engine) Release(ctx context.Context, l driver.Lease) error {
	if err := e.begin(); err != nil {
		return err
	}
	defer e.tasks.Done()
	switch h := e.holds.get(l.Owner); {
	case h != nil && (h.lease.Token != l.Token || h.lease.Name != l.Name):
		return fmt.Errorf("%w: %q", driver.ErrNotHeld, l.Name)
	case h != nil:
		l.Token = 0
	}
	return e.released(ctx, l, e.end(l, false))
}

// released waits for a majority of the answers to a release.
func (e *Engine) released(ctx context.Context, l driver.Lease, answers <-chan reply) error {
	freed, gone := 0, 0
	var why causes
	for heard := 0; heard < len(e.nodes) && freed < e.need && gone < e.need; heard++ {
		select {
		case r := <-answers:
			switch {
			case r.Err != nil:
				why.add(e.nodes[r.node], r.Err)
			case r.Text == "ok":
				freed++
			default:
				gone++
			}
		case <-ctx.Done():
			return unavailable(ctx.Err())
		}
	}
	switch {
	case gone >= e.need:
		return fmt.Errorf("%w: %q", driver.ErrNotHeld, l.Name)
	case freed+gone < e.need:
		return why.err()
	}
	// Some may have lost it. Those who share the lock next take the smallest token
	// on any node for their floor, so the slow nodes are given a moment.
	if l.Mode == driver.Shared {
		e.waitBriefly(answers, freed+gone+len(why.errs))
	}
	return nil
}

// waitBriefly waits for the rest of the answers, but not for long.
func (e *Engine) waitBriefly(answers <-chan reply, heard int) {
	limit := time.NewTimer(50 * time.Millisecond)
	defer limit.Stop()
	for ; heard < len(e.nodes); heard++ {
		select {
		case <-answers:
		case <-limit.C:
			return
		}
	}
}

// end forgets an acquisition, and ends it on all nodes, in the background; and any
// minimum hold of the name with it, if opens.
func (e *Engine) end(l driver.Lease, opens bool) <-chan reply {
	answers := make(chan reply, len(e.nodes))
	var under asks
	if h := e.holds.forget(l.Owner); h != nil {
		under = h.asks
	}
	e.broadcast(e.nodes, e.cfg.endLimit(l.TTL), answers, under.after(func(ctx context.Context, n *node) redislock.Reply {
		return n.release(ctx, releaseCall{name: l.Name, owner: l.Owner, token: l.Token, publish: e.publishMode(n), until: under.until(n), failed: opens, ttl: l.TTL})
	}))
	return answers
}

// discard gives up an acquisition that is lost, and frees what stands of it.
func (e *Engine) discard(l driver.Lease) {
	l.Token = 0
	e.end(l, false)
}

// publishMode says whether a node is to tell waiters of a release. They listen to the
// first node that answers; two tell, should not all agree on which that is.
func (e *Engine) publishMode(n *node) string {
	before := 0
	for _, o := range e.nodes[:n.index] {
		if o.out.Load() == nil {
			before++
		}
	}
	if before < 2 {
		return "2"
	}
	return "1"
}
