package redlock

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/quorum"
	"github.com/fencelock/fencelock/redislock"
	"github.com/google/uuid"
)

// attempt is one take under way.
type attempt struct {
	engine *Engine
	req    driver.Request
	how    manner
	owner  string
	desc   string
	take   *quorum.Take
	sent   time.Time

	asked, raised chan reply
	open          int    // answers that are still to come
	granted       []bool // by node
	idle          []bool // nodes that were not asked, and have nothing to give back

	ballot ballot
}

// manner is how an attempt is made.
type manner struct {
	woken  bool   // the request was told that the name is free
	asks   asks   // those of the whole request; nil for those of the attempt alone
	since  int64  // from when it has waited, in microseconds; 0 if it does not wait
	caller string // its name in the queue
	reason string // to break the name with; "" for an ordinary take
}

// outcome is how an attempt ended.
type outcome struct {
	grant driver.Grant
	won   bool
	inWay *driver.HeldError
	split bool          // nobody is known to have a majority
	next  time.Duration // until time alone may change something; 0 means unknown
	heard bool          // a majority answered
	later bool          // and some of it will vote when it is out of quarantine
	err   error         // no majority answered
	final bool          // and another attempt would fare no better
}

// try makes one attempt. It returns as soon as it is decided; what answers after
// that is taken care of in the background. If ctx ends first, what the attempt
// got is given back.
func (e *Engine) try(ctx context.Context, req driver.Request, how manner) outcome {
	id, err := uuid.NewV7()
	if err != nil {
		return outcome{err: unavailable(fmt.Errorf("no owner: %w", err)), final: true}
	}
	if how.asks == nil {
		how.asks = make(asks, len(e.nodes))
	}
	a := &attempt{
		engine: e, req: req, how: how, owner: id.String(), desc: describe(req),
		asked: make(chan reply, len(e.nodes)), raised: make(chan reply, len(e.nodes)),
		granted: make([]bool, len(e.nodes)), idle: make([]bool, len(e.nodes)), ballot: ballot{engine: e, name: req.Name, open: len(e.nodes)},
	}
	a.sent = time.Now()
	a.ask(e.propose())
	for a.take.State() == quorum.Asking || a.take.State() == quorum.Raising {
		a.step(ctx)
	}
	if a.take.State() == quorum.Lost {
		a.linger(ctx)
	}
	o := a.outcome(ctx)
	if a.open > 0 || a.waitsOnSome() {
		e.tasks.run(a.finish) // ends when every node has answered, or with the limit
	}
	return o
}

// ask sends the first round. Those who were woken by the same news would take a
// few nodes each, and nobody a majority; so they ask one node first, and only who
// gets that one goes on.
func (a *attempt) ask(proposed int64) {
	e := a.engine
	terms := e.terms(a.req.Mode, a.req.TTL)
	terms.TwoRound = a.req.AtLeast > 0 // which the second round stores
	a.take = quorum.NewTake(terms, proposed, instant(a.sent))
	question := func(call string) func(context.Context, *node) redislock.Reply {
		return asking(e.call(askScript, a.req.Name, a.owner, letter(a.req.Mode), millis(a.req.TTL), strconv.FormatInt(proposed, 10),
			flag(a.how.reason != ""), a.how.reason, a.desc, strconv.FormatInt(a.how.since, 10), a.how.caller, call))
	}
	rest, call := e.nodes, "-"
	if first := e.leader(); a.how.woken && first != nil {
		only := []*node{first}
		e.spread(only, e.cfg.limit(a.req.TTL), a.asked, a.how.asks.under(only, question("first")))
		r := <-a.asked
		a.answered(r)
		if r.Err == nil && !a.granted[r.node] {
			for i := range a.idle {
				a.idle[i] = true
			}
			a.obey(a.take.Expire())
			return
		}
		rest, call = without(e.nodes, first), "next"
	}
	a.open = len(rest)
	e.spread(rest, e.cfg.limit(a.req.TTL), a.asked, a.how.asks.under(rest, question(call)))
}

// without returns the nodes but one.
func without(nodes []*node, but *node) []*node {
	var rest []*node
	for _, n := range nodes {
		if n != but {
			rest = append(rest, n)
		}
	}
	return rest
}

// leader returns the node whose news wakes waiters: the first that answers.
func (e *Engine) leader() *node {
	for _, n := range e.nodes {
		if n.out.Load() == nil {
			return n
		}
	}
	return nil
}

// step takes one answer. The requests have their own limits.
func (a *attempt) step(ctx context.Context) {
	select {
	case r := <-a.asked:
		a.open--
		a.answered(r)
	case r := <-a.raised:
		a.open--
		a.obey(a.take.Raised(r.node, r.Err == nil && r.Text == "ok", 0, instant(time.Now())))
	case <-ctx.Done():
		a.obey(a.take.Expire())
	case <-a.engine.closed.Done():
		a.obey(a.take.Expire())
	}
}

// lingering is how long a lost attempt waits to learn whether anybody won.
const lingering = 5 * time.Millisecond

// linger waits for answers that tell nodes that are down, and a collision, from
// a holder.
func (a *attempt) linger(ctx context.Context) {
	for a.open > 0 && a.ballot.unclear() && ctx.Err() == nil && a.engine.closed.Err() == nil {
		a.step(ctx) // each request has its limit
	}
	ctx, cancel := context.WithTimeout(ctx, lingering)
	defer cancel()
	for a.open > 0 && ctx.Err() == nil && a.ballot.split() == perhaps && a.engine.closed.Err() == nil {
		a.step(ctx)
	}
}

func (a *attempt) answered(r reply) {
	if unknown(r.Err) {
		a.engine.nodes[r.node].owe(a.req.Name, a.owner, a.req.TTL)
	} else if r.Err != nil {
		a.idle[r.node] = true
	}
	if a.take.State() == quorum.Won && !a.engine.keeps(a.owner) {
		return // it has been released since, and the release comes to this node next; see asks
	}
	a.vote(r)
}

func (a *attempt) vote(r reply) {
	v := a.ballot.vote(r)
	a.granted[r.node] = v.Granted
	a.obey(a.take.Asked(r.node, v, instant(time.Now())))
}

// finish deals with stragglers.
func (a *attempt) finish() {
	for a.open > 0 {
		select {
		case r := <-a.asked:
			a.open--
			a.answered(r)
		case r := <-a.raised:
			a.open--
			a.obey(a.take.Raised(r.node, r.Err == nil && r.Text == "ok", 0, instant(time.Now())))
		}
	}
	if a.waitsOnSome() {
		var others []*node
		for i, n := range a.engine.nodes {
			if !a.granted[i] {
				others = append(others, n)
			}
		}
		a.engine.depart(a.req.Name, a.req.TTL, a.how, others)
	}
}

// waitsOnSome reports whether a request that has its lock is in the queue of
// nodes that did not grant it. They would keep the name for it.
func (a *attempt) waitsOnSome() bool {
	return a.take.State() == quorum.Won && a.how.since > 0 && slices.Contains(a.granted, false)
}

// obey sends what follows from an answer.
func (a *attempt) obey(o quorum.Orders) {
	e := a.engine
	if len(o.Raise) > 0 {
		nodes := make([]*node, len(o.Raise))
		for i, index := range o.Raise {
			nodes[i] = e.nodes[index]
		}
		a.open += len(nodes)
		e.spread(nodes, e.cfg.limit(a.req.TTL), a.raised,
			asking(e.call(raiseScript, a.req.Name, a.owner, strconv.FormatInt(a.take.Token(), 10), millis(a.req.AtLeast))))
	}
	for _, i := range o.Free {
		if !a.idle[i] {
			e.nodes[i].free(a.req.Name, a.owner, a.req.TTL)
		}
	}
}

func (a *attempt) outcome(ctx context.Context) outcome {
	if a.take.State() != quorum.Won {
		return a.ballot.outcome(ctx)
	}
	e := a.engine
	g := driver.Grant{Owner: a.owner, Token: a.take.Token(), Floor: a.take.Floor(), Sent: a.sent, TTL: a.req.TTL}
	e.saw(g.Token)
	e.keep(a.req, g, a.how.asks)
	return outcome{won: true, grant: g}
}

// ahead is how far ahead of a node's clock a proposal may be. The nodes have it,
// too.
const ahead = 500 * time.Millisecond

// lead is how far ahead of the clock a proposal is: more than a request takes to
// reach a node, and than clocks usually differ.
const lead = 100 * time.Millisecond

// propose returns a token that all nodes are likely to accept: a little ahead of
// the clock, and above what was seen.
func (e *Engine) propose() int64 {
	now := e.clock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = max(now.Add(lead).UnixMicro(), e.last+1)
	return e.last
}

// saw notes a token. A node whose clock is far ahead does not carry proposals
// with it.
func (e *Engine) saw(token int64) {
	limit := e.clock().Add(ahead).UnixMicro()
	e.mu.Lock()
	defer e.mu.Unlock()
	if token <= limit {
		e.last = max(e.last, token)
	}
}
