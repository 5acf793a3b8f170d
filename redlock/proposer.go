package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/quorum"
	"github.com/fencelock/fencelock/internal/redisfmt"
	"github.com/google/uuid"
)

// proposer makes attempts, with tokens that the nodes are likely to accept.
type proposer struct {
	*client
	set   *nodeSet
	holds *holdings
	names *nameIndex
	clock func() time.Time // for proposals only; tests replace it

	mu   sync.Mutex // guards last
	last int64      // the greatest token so far
}

// try makes one attempt. It returns as soon as the attempt is decided; later replies are handled in
// the background. If ctx ends first, everything that the attempt was granted is released.
func (p *proposer) try(ctx context.Context, req driver.Request, how attemptOptions) outcome {
	owner := uuid.Must(uuid.NewV7()).String() // never fails
	n := len(p.set.nodes)
	if how.inflight == nil {
		how.inflight = make(inflight, n)
	}
	a := &attempt{
		client: p.client, set: p.set, holds: p.holds, req: req, how: how, owner: owner, desc: redisfmt.Identity(req.Identity),
		asked: make(chan reply, n), raised: make(chan reply, n),
		granted: make([]bool, n), settled: make([]bool, n), answered: make([]bool, n), idle: make([]bool, n),
		votes: votes{set: p.set, name: req.Name, past: how.past, open: n},
	}
	a.sent = time.Now() // the lease counts from before the first call is sent
	a.ask(ctx, p.propose())
	for a.take.State() == quorum.Asking || a.take.State() == quorum.Raising {
		a.step(ctx)
	}
	if a.take.State() == quorum.Lost {
		a.awaitStraggler(ctx)
	}
	o := a.outcome(ctx)
	if o.won { // before further replies arrive: what they cause depends on the holds
		p.observeToken(o.grant.Token)
		p.keep(req, o.grant, how.inflight)
	}
	if a.open > 0 || len(a.stillQueued()) > 0 || len(a.refused()) > 0 {
		p.tasks.Spawn(func() { // ends when every node has answered, or with the limits of two rounds
			a.finish()
			p.depart(req.Name, req.TTL, how, a.stillQueued())
			a.askAgain()
		})
	}
	return o
}

// ahead is how far ahead of a node's clock a proposal may be. The nodes check it.
const ahead = 500 * time.Millisecond

// lead is how far ahead of the local clock a proposal is: more than a request takes to reach a
// node, and more than clocks usually differ.
const lead = 100 * time.Millisecond

// propose returns a token that all nodes are likely to accept: a little ahead of the clock, and
// greater than those seen so far.
func (p *proposer) propose() int64 {
	now := p.clock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = max(now.Add(lead).UnixMicro(), p.last+1)
	return p.last
}

// observeToken records a token. Tokens far ahead of the clock are ignored, so that a node with a
// wrong clock does not affect later proposals.
func (p *proposer) observeToken(token int64) {
	limit := p.clock().Add(ahead).UnixMicro()
	p.mu.Lock()
	defer p.mu.Unlock()
	if token <= limit {
		p.last = max(p.last, token)
	}
}

// keep records a grant until it is released or known to be lost.
func (p *proposer) keep(req driver.Request, g driver.Grant, under inflight) {
	h := &held{
		lease:    driver.Lease{Name: req.Name, Owner: g.Owner, Token: g.Token, Mode: req.Mode, TTL: req.TTL},
		desc:     redisfmt.Identity(req.Identity),
		sent:     g.Sent,
		inflight: under,
		lost:     func(error) {},
	}
	if req.OnLost != nil {
		var once sync.Once // several nodes may report the same break
		h.lost = func(cause error) { once.Do(func() { req.OnLost(cause) }) }
	}
	p.holds.add(h)
	p.names.Add(nameindex.Noted{Owner: g.Owner, Name: req.Name, Life: max(req.TTL, req.MinHold) + nameindex.Lag, Closes: req.MinHold > 0})
}

// depart removes a request from the nodes' queues in the background. It calls each node after the
// request's last call has been answered or has timed out, because that call could put the request
// into the queue again.
func (p *proposer) depart(name string, ttl time.Duration, how attemptOptions, nodes []*node) <-chan reply {
	answers := make(chan reply, len(nodes))
	if len(nodes) > 0 {
		p.set.broadcast(nodes, p.cfg.endLimit(ttl), answers, how.inflight.after(asking(p.call(p.lua.leave, name, how.caller))))
	}
	return answers
}
