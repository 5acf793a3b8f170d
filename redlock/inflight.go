package redlock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
)

// inflight tracks a request's calls in flight at each node. An operation that undoes such a call (a
// release, or leaving the queue) is sent only after the call has been answered or has timed out,
// because the two may use different connections. A call that timed out may still arrive; the
// undoing operation bars it.
type inflight []asked

// asked tracks the calls to one node.
type asked struct {
	open  sync.WaitGroup
	until atomic.Int64 // until when a call that timed out may arrive, by the node's clock; 0 if there is none
}

// under returns ask, extended to track its calls to nodes, which have the time limit d.
func (as inflight) under(nodes []*node, d time.Duration, ask question) question {
	for _, n := range nodes {
		as[n.index].open.Add(1)
	}
	return func(ctx context.Context, n *node) redisconn.Reply {
		defer as[n.index].open.Done()
		r := ask(ctx, n)
		if unknown(r.Err) {
			as.gaveUp(n, d)
		}
		return r
	}
}

// gaveUp records that a call to the node has timed out.
func (as inflight) gaveUp(n *node, d time.Duration) {
	as[n.index].until.Store(n.clock.by(d))
}

// until returns until when a call that timed out may reach the node.
func (as inflight) until(n *node) int64 { return as[n.index].until.Load() }

// after returns ask, extended to wait for the calls in flight, which have time limits of their own.
func (as inflight) after(ask question) question {
	return func(ctx context.Context, n *node) redisconn.Reply {
		as[n.index].open.Wait()
		return ask(ctx, n)
	}
}
