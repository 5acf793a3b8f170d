package redlock

import (
	"context"
	"slices"
	"time"

	"github.com/fencelock/fencelock/redislock"
)

// releaseCall takes an acquisition back on one node.
type releaseCall struct {
	name, owner string
	token       int64  // 0 fits any: some nodes store one a little off
	publish     string // whether who waits is told; see publishMode
	until       int64  // a request of this owner may arrive until then, by the node's clock; 0 means that all were answered
	failed      bool   // the take failed, or was a break: any minimum hold ends with it
	ttl         time.Duration
}

func (e *Engine) release(d releaseCall) redislock.Call {
	args := []string{d.owner, decimal(d.token), d.publish}
	if d.until > 0 || d.failed {
		args = append(args, decimal(d.until), flag(d.failed))
	}
	return e.call(e.lua.release, d.name, args...)
}

// orphan is a lock that a node may have granted, or may grant yet, and that nobody
// has: a request of unknown outcome, or a release that did not get through. It
// is released when the node answers. What stays nevertheless keeps the name for
// one TTL on this one node, and is never taken for a lock that is held.
type orphan struct {
	releaseCall
	expires time.Time // the lease is over by then
}

// maxOrphans bounds the memory that a dead node takes. More are left to expire.
const maxOrphans = 10_000

// noteOrphan notes an orphan, and has it released as soon as the node answers.
func (n *node) noteOrphan(d releaseCall) {
	d.publish = "2"
	n.mu.Lock()
	defer n.mu.Unlock()
	n.note(d)
	n.wake()
}

// note notes an orphan. The caller holds mu.
func (n *node) note(d releaseCall) {
	d.token = 0
	now := time.Now()
	if len(n.orphans) >= maxOrphans {
		n.dropExpired(now)
	}
	if len(n.orphans) < maxOrphans {
		// A frozen node counts the lease from when it is thawed.
		n.orphans[d.owner] = orphan{d, now.Add(max(10*d.ttl, time.Minute))}
	}
}

// owes reports whether an owner whom the node shows has nothing any more.
func (n *node) owes(owner string) bool {
	n.mu.Lock()
	_, owed := n.orphans[owner]
	n.mu.Unlock()
	return owed && !n.engine.holds.has(owner)
}

// dropExpired forgets orphans that are over. The caller holds mu.
func (n *node) dropExpired(now time.Time) {
	for owner, d := range n.orphans {
		if d.expires.Before(now) {
			delete(n.orphans, owner)
		}
	}
}

// releaseOrphans releases what nobody has. What the server refuses for now is tried again.
func (n *node) releaseOrphans(ctx context.Context) (err error) {
	for err == nil {
		owners, calls := n.nextOrphans(500)
		if len(calls) == 0 {
			return nil
		}
		for i, r := range n.conn.Eval(ctx, calls) {
			if r.Err != nil && !denied(r.Err) { // NOSCRIPT after a deadline, too
				err = r.Err
				continue
			}
			n.mu.Lock()
			delete(n.orphans, owners[i])
			n.mu.Unlock()
		}
	}
	return err
}

// nextOrphans returns the releases of up to limit orphans, and forgets those that are
// none: the acquisition stands after all.
func (n *node) nextOrphans(limit int) (owners []string, calls []redislock.Call) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dropExpired(time.Now())
	for owner, d := range n.orphans {
		if len(calls) == limit {
			break
		}
		if n.engine.holds.has(owner) {
			delete(n.orphans, owner)
			continue
		}
		owners = append(owners, owner)
		calls = append(calls, n.engine.release(d.releaseCall))
	}
	return owners, slices.Clip(calls)
}

// free gives the node's lock back in the background, without telling anybody:
// who waits looks again by itself, and telling all would make them all collide. It
// is an orphan until then, or the next attempt would take it for somebody's lock.
func (n *node) free(d releaseCall) {
	d.publish = "0"
	n.mu.Lock()
	n.note(d)
	n.mu.Unlock()
	n.engine.tasks.run(func() { // ends with callLimit
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		if n.release(ctx, d).Err == nil {
			n.mu.Lock()
			delete(n.orphans, d.owner)
			n.mu.Unlock()
		}
	})
}

// release ends an acquisition on the node, now or when the node is back.
func (n *node) release(ctx context.Context, d releaseCall) redislock.Reply {
	r := n.ask(ctx, n.engine.release(d))[0]
	if r.Err != nil {
		n.noteOrphan(d)
	}
	return r
}
