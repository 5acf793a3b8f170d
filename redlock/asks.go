package redlock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
)

// asks are the questions of a request that are under way at each node. Who takes
// back what a question may do, a lock or a place in the queue, lets it go first: the
// two need not travel on one connection. A question that was given up may still
// arrive, and is barred.
type asks []asked

// asked are the questions to one node.
type asked struct {
	open  sync.WaitGroup
	until atomic.Int64 // one that was given up may arrive until then, by the node's clock; 0 if there is none
}

// under counts questions to nodes, which ask puts, and which are of use for d.
func (as asks) under(nodes []*node, d time.Duration, ask question) question {
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

// gaveUp notes that nobody waits for an answer of the node any more.
func (as asks) gaveUp(n *node, d time.Duration) {
	as[n.index].until.Store(n.clock.by(d))
}

// until returns until when a question that was given up may reach the node.
func (as asks) until(n *node) int64 { return as[n.index].until.Load() }

// after lets the questions to a node that are under way go first, which have limits
// of their own.
func (as asks) after(ask question) question {
	return func(ctx context.Context, n *node) redisconn.Reply {
		as[n.index].open.Wait()
		return ask(ctx, n)
	}
}
