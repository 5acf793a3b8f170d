package redlock

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock"
)

// debt is a lock that a node may have granted, or may grant yet, and that nobody
// has: a request of unknown outcome, or a release that did not get through. It
// is released when the node is back. What stays nevertheless keeps the name for
// one TTL on this one node, and is never taken for a lock that is held.
type debt struct {
	name  string
	until time.Time // the lease is over by then
}

// maxDebts bounds the memory that a dead node takes. More are left to expire.
const maxDebts = 10_000

func (n *node) owe(name, owner string, ttl time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if len(n.debts) >= maxDebts {
		for owner, d := range n.debts {
			if d.until.Before(now) {
				delete(n.debts, owner)
			}
		}
	}
	if len(n.debts) < maxDebts {
		// A frozen node counts the lease from when it is thawed.
		n.debts[owner] = debt{name, now.Add(max(10*ttl, time.Minute))}
	}
}

// payDebts releases what nobody has.
func (n *node) payDebts(ctx context.Context) error {
	for {
		owners, calls := n.due(500)
		if len(calls) == 0 {
			return nil
		}
		for i, r := range n.conn.Eval(ctx, calls) {
			if unknown(r.Err) {
				return r.Err
			}
			n.mu.Lock()
			delete(n.debts, owners[i])
			n.mu.Unlock()
		}
	}
}

// due returns the releases of up to limit debts, and forgets those that are
// none: the acquisition stands after all.
func (n *node) due(limit int) (owners []string, calls []redislock.Call) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for owner, d := range n.debts {
		if len(calls) == limit {
			break
		}
		if n.engine.keeps(owner) {
			delete(n.debts, owner)
			continue
		}
		owners = append(owners, owner)
		calls = append(calls, n.engine.call(releaseScript, d.name, owner, "0", "2"))
	}
	return owners, slices.Clip(calls)
}

// free gives the node's lock back in the background, without telling anybody:
// who waits looks again by itself, and telling all would make them all collide.
func (n *node) free(name, owner string, ttl time.Duration) {
	n.engine.tasks.run(func() { // ends with callLimit
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		n.release(ctx, driver.Lease{Name: name, Owner: owner, TTL: ttl}, "0")
	})
}

// release ends an acquisition on the node, now or when the node is back. A token
// of 0 fits any: some nodes store one a little off.
func (n *node) release(ctx context.Context, l driver.Lease, tell string) redislock.Reply {
	r := n.ask(ctx, n.engine.call(releaseScript, l.Name, l.Owner, strconv.FormatInt(l.Token, 10), tell))[0]
	if r.Err != nil {
		n.owe(l.Name, l.Owner, l.TTL)
	}
	return r
}
