package redlock

import (
	"context"
	"sync"

	"github.com/fencelock/fencelock/redislock"
)

// asks counts the questions of a request that are under way at each node. Who takes
// back what a question may do, a lock or a place in the queue, lets it go first: the
// two need not travel on one connection.
type asks []sync.WaitGroup

// under counts questions to nodes, which ask puts.
func (as asks) under(nodes []*node, ask func(context.Context, *node) redislock.Reply) func(context.Context, *node) redislock.Reply {
	for _, n := range nodes {
		as[n.index].Add(1)
	}
	return func(ctx context.Context, n *node) redislock.Reply {
		defer as[n.index].Done()
		return ask(ctx, n)
	}
}

// after lets the questions to a node that are under way go first, which have limits
// of their own. There may be none to know of.
func (as asks) after(ask func(context.Context, *node) redislock.Reply) func(context.Context, *node) redislock.Reply {
	if as == nil {
		return ask
	}
	return func(ctx context.Context, n *node) redislock.Reply {
		as[n.index].Wait()
		return ask(ctx, n)
	}
}
