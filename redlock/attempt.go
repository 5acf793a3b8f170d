package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	how    attemptOptions
	owner  string
	desc   string
	take   *quorum.Take
	sent   time.Time

	asked, raised chan reply
	open          int    // answers that are still to come
	granted       []bool // by node
	heard         []bool // nodes of which the outcome is known, or will not be
	answered      []bool // those that said something
	idle          []bool // nodes that were not asked, and have nothing to give back

	tally tally
}

// attemptOptions is how an attempt is made.
type attemptOptions struct {
	woken  bool      // the request was told that the name is free
	mine   bool      // and that it goes first
	asks   asks      // those of the whole request; nil for those of the attempt alone
	joins  bool      // it waits in the nodes' queues
	since  time.Time // from when
	caller string    // its name there
	reason string    // to break the name with; "" for an ordinary take
	only   string    // and to take it from that owner alone; "" for all
	past   []string  // the owners of the request's attempts before this one, all of them lost
}

// outcome is how an attempt ended.
type outcome struct {
	grant driver.Grant
	owner string // of the attempt
	won   bool
	inWay *driver.HeldError
	split bool          // nobody is known to have a majority
	next  time.Duration // until time alone may change something; 0 means unknown
	heard bool          // a majority answered
	later bool          // and some of it will vote when it is out of quarantine
	err   error         // no majority answered
	cut   bool          // because the caller's context ended first
	final bool          // and another attempt would fare no better
}

// note tells what a request hears by the attempt.
func (o *outcome) note(ctx context.Context, heard *driver.Waited) {
	held, trouble := heard.Last()
	switch {
	case o.cut && (held != nil || trouble != nil): // that is no news
	case o.err != nil:
		heard.Unavailable(ctx, o.err)
	case !o.won && o.heard:
		heard.Held(o.inWay)
	}
}

// ended is the error of a request that ends with the attempt.
func (o *outcome) ended(ctx context.Context, heard *driver.Waited) error {
	if o.cut {
		return heard.Ended(ctx, nil)
	}
	return heard.Ended(ctx, o.err)
}

// try makes one attempt. It returns as soon as it is decided; what answers after
// that is taken care of in the background. If ctx ends first, what the attempt
// got is given back.
func (e *Engine) try(ctx context.Context, req driver.Request, how attemptOptions) outcome {
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
		granted: make([]bool, len(e.nodes)), heard: make([]bool, len(e.nodes)), answered: make([]bool, len(e.nodes)), idle: make([]bool, len(e.nodes)), tally: tally{engine: e, name: req.Name, past: how.past, open: len(e.nodes)},
	}
	a.sent = time.Now()
	a.ask(e.propose())
	for a.take.State() == quorum.Asking || a.take.State() == quorum.Raising {
		a.step(ctx)
	}
	if a.take.State() == quorum.Lost {
		a.awaitStraggler(ctx)
	}
	o := a.outcome(ctx)
	o.owner = a.owner
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
	terms.TwoRound = a.req.MinHold > 0 // which the second round stores
	a.take = quorum.NewTake(terms, proposed, instant(a.sent))
	limit := e.cfg.limit(a.req.TTL)
	question := func(nodes []*node, call string) {
		args := a.args(proposed, call)
		e.broadcast(nodes, limit, a.asked, a.how.asks.under(nodes, limit, func(ctx context.Context, n *node) redislock.Reply {
			mine := slices.Clone(args)
			mine[askBy] = decimal(n.by(limit))
			return n.ask(ctx, e.call(e.lua.ask, a.req.Name, mine...))[0]
		}))
	}
	rest, call := e.nodes, "-"
	switch first := e.leader(); {
	case first == nil:
	case a.how.mine: // the leader has said so: nobody else asks now
		question([]*node{first}, "first")
		rest, call = without(e.nodes, first), "next"
		a.open++
	case a.how.woken:
		question([]*node{first}, "first")
		r := <-a.asked
		a.onReply(r)
		if r.Err == nil && !a.granted[r.node] {
			a.tally.first = true
			for i := range a.idle {
				a.idle[i], a.heard[i] = true, true
			}
			a.apply(a.take.Expire())
			return
		}
		rest, call = without(e.nodes, first), "next"
	}
	a.open += len(rest)
	question(rest, call)
}

// askBy is which argument tells a node after what time it need not answer. What
// comes behind desc is left out where it says nothing.
const askBy = 3

// args are the arguments of the first round.
func (a *attempt) args(proposed int64, call string) []string {
	args := []string{a.owner, millis(a.req.TTL), decimal(proposed), "", a.desc}
	waited := int64(-1)
	if a.how.joins {
		waited = time.Since(a.how.since).Microseconds()
	}
	if a.how.reason != "" {
		call = "break"
	}
	if a.req.Mode == driver.Exclusive && waited < 0 && call == "-" {
		return args
	}
	args = append(args, letter(a.req.Mode), decimal(waited), a.how.caller, call, a.how.reason)
	if a.how.only != "" {
		args = append(args, a.how.only)
	}
	return args
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
		a.onReply(r)
	case r := <-a.raised:
		a.open--
		a.stored(r)
	case <-ctx.Done():
		a.apply(a.take.Expire())
	case <-a.engine.closed.Done():
		a.apply(a.take.Expire())
	}
}

// lingering is how long a lost attempt waits to learn whether anybody won.
const lingering = 5 * time.Millisecond

// awaitStraggler waits for answers that tell nodes that are down, and a collision, from
// a holder.
func (a *attempt) awaitStraggler(ctx context.Context) {
	for a.open > 0 && a.tally.unclear() && ctx.Err() == nil && a.engine.closed.Err() == nil {
		a.step(ctx) // each request has its limit
	}
	ctx, cancel := context.WithTimeout(ctx, lingering)
	defer cancel()
	for a.open > 0 && ctx.Err() == nil && a.tally.split() == perhaps && a.engine.closed.Err() == nil {
		a.step(ctx)
	}
}

// onReply takes an answer to the first round.
func (a *attempt) onReply(r reply) {
	n := a.engine.nodes[r.node]
	a.heard[r.node] = true
	switch {
	case unknown(r.Err):
		n.noteOrphan(a.ending(n))
	case r.Err != nil:
		a.idle[r.node] = true
	default:
		a.answered[r.node] = true
	}
	if a.take.State() == quorum.Won && !a.engine.holds.has(a.owner) {
		return // it has been released since, and the release comes to this node next; see asks
	}
	a.vote(r)
}

// ending takes the attempt back on a node, which may not have run its request yet.
func (a *attempt) ending(n *node) releaseCall {
	d := releaseCall{name: a.req.Name, owner: a.owner, ttl: a.req.TTL, failed: a.req.MinHold > 0}
	if !a.answered[n.index] {
		d.until = n.by(a.engine.cfg.limit(a.req.TTL))
	}
	return d
}

// stored takes an answer to the second round.
func (a *attempt) stored(r reply) {
	ok, server := affirmed(r.Reply)
	a.apply(a.take.Raised(r.node, ok, server, instant(time.Now())))
}

// affirmed reads an answer that says "ok" and which server it is.
func affirmed(r redislock.Reply) (ok bool, server uint64) {
	word, name, _ := strings.Cut(r.Text, " ")
	return r.Err == nil && word == "ok", serverOf(name)
}

func (a *attempt) vote(r reply) {
	v := a.tally.vote(r)
	a.granted[r.node] = v.Granted
	a.apply(a.take.Asked(r.node, v, instant(time.Now())))
}

// finish deals with stragglers.
func (a *attempt) finish() {
	for a.open > 0 {
		select {
		case r := <-a.asked:
			a.open--
			a.onReply(r)
		case r := <-a.raised:
			a.open--
			a.stored(r)
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
	return a.take.State() == quorum.Won && a.how.joins && slices.Contains(a.granted, false)
}

// apply sends what follows from an answer.
func (a *attempt) apply(o quorum.Orders) {
	e := a.engine
	if len(o.Raise) > 0 {
		nodes := make([]*node, len(o.Raise))
		for i, index := range o.Raise {
			nodes[i] = e.nodes[index]
		}
		a.open += len(nodes)
		e.broadcast(nodes, e.cfg.limit(a.req.TTL), a.raised,
			asking(e.call(e.lua.raise, a.req.Name, a.owner, decimal(a.take.Token()), millis(a.req.MinHold))))
	}
	for _, i := range o.Free {
		if !a.idle[i] {
			e.nodes[i].free(a.ending(e.nodes[i]))
		}
	}
}

var errNoAnswer = errors.New("no answer yet")

func (a *attempt) outcome(ctx context.Context) outcome {
	e := a.engine
	if a.take.State() != quorum.Won {
		for i, heard := range a.heard {
			if !heard {
				a.tally.causes.add(e.nodes[i], errNoAnswer)
			}
		}
		return a.tally.outcome(ctx)
	}
	g := driver.Grant{Owner: a.owner, Token: a.take.Token(), Floor: a.take.Floor(), Sent: a.sent, TTL: a.req.TTL}
	e.observeToken(g.Token)
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

// observeToken notes a token. A node whose clock is far ahead does not carry proposals
// with it.
func (e *Engine) observeToken(token int64) {
	limit := e.clock().Add(ahead).UnixMicro()
	e.mu.Lock()
	defer e.mu.Unlock()
	if token <= limit {
		e.last = max(e.last, token)
	}
}
