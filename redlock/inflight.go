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

// asked tracks the calls to one node. A call may begin while an operation waits, which a
// sync.WaitGroup does not allow.
type asked struct {
	until atomic.Int64 // until when a call that timed out may arrive, by the node's clock; 0 if there is none

	mu   sync.Mutex    // guards open and idle
	open int           // calls in flight
	idle chan struct{} // closed when there are none; nil if nobody waits
}

func (a *asked) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open++
}

func (a *asked) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open--; a.open == 0 && a.idle != nil {
		close(a.idle)
		a.idle = nil
	}
}

// wait blocks until no call is in flight.
func (a *asked) wait() {
	a.mu.Lock()
	if a.open > 0 && a.idle == nil {
		a.idle = make(chan struct{})
	}
	idle := a.idle
	a.mu.Unlock()
	if idle != nil {
		<-idle
	}
}

// under returns ask, extended to track its calls to nodes, which have the time limit d.
func (as inflight) under(nodes []*node, d time.Duration, ask question) question {
	for _, n := range nodes {
		as[n.index].begin()
	}
	return func(ctx context.Context, n *node) redisconn.Reply {
		defer as[n.index].end()
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
		as[n.index].wait()
		return ask(ctx, n)
	}
}
