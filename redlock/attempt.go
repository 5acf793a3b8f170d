package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/quorum"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
	"github.com/fencelock/fencelock/internal/retry"
)

// attempt is one take under way. One goroutine has it: the caller's until it is
// decided, and then the one that deals with the stragglers.
type attempt struct {
	*client
	set   *nodeSet
	holds *holdings
	req   driver.Request
	how   attemptOptions
	owner string
	desc  string
	take  *quorum.Take
	sent  time.Time

	asked, raised chan reply // answers to the first and the second round; there is room for all
	open          int        // answers that are still to come
	granted       []bool     // by node
	heard         []bool     // nodes of which the outcome is known, or will not be
	answered      []bool     // those that said something
	idle          []bool     // nodes that were not asked, and have nothing to give back

	tally tally
}

// attemptOptions is how an attempt is made.
type attemptOptions struct {
	woken  bool      // the request was told that the name is free
	mine   bool      // and, if so, that it goes first
	asks   asks      // those of the whole request; nil for those of the attempt alone
	joins  bool      // it waits in the nodes' queues
	since  time.Time // from when
	caller string    // its name there
	reason string    // to break the name with; "" for an ordinary take
	only   string    // and to take it from that owner alone; "" for all
	past   []string  // the owners of the request's attempts before this one, all of them lost
}

// ask sends the first round. Those who were woken by the same news would take a
// few nodes each, and nobody a majority; so they ask one node first, and only who
// gets that one goes on.
func (a *attempt) ask(ctx context.Context, proposed int64) {
	terms := a.set.terms(a.req.Mode, a.req.TTL)
	terms.TwoRound = a.req.MinHold > 0 // which the second round stores
	a.take = quorum.NewTake(terms, proposed, instant(a.sent))
	rest, call := a.set.nodes, "-"
	if first := a.set.leader(); first != nil && a.how.woken {
		a.send([]*node{first}, proposed, "first")
		if !a.how.mine && !a.passes(ctx, first) { // if it is, the leader has said so: nobody else asks now
			return
		}
		rest, call = slices.DeleteFunc(slices.Clone(rest), func(n *node) bool { return n == first }), "next"
	}
	a.send(rest, proposed, call)
}

// send asks nodes for the lock.
func (a *attempt) send(nodes []*node, proposed int64, call string) {
	args, limit := a.askArgs(proposed, call), a.cfg.limit(a.req.TTL)
	a.open += len(nodes)
	a.set.broadcast(nodes, limit, a.asked, a.how.asks.under(nodes, limit, func(ctx context.Context, n *node) redisconn.Reply {
		by, err := n.notAfter(ctx, limit)
		if err != nil {
			return redisconn.Reply{Err: err}
		}
		mine := slices.Clone(args)
		mine[askBy] = redisfmt.Decimal(by)
		return n.ask(ctx, a.call(a.lua.ask, a.req.Name, mine...))[0]
	}))
}

// passes waits for the vote of the node that was asked first, and reports whether the rest
// is to be asked. The attempt is lost if another goes on with the rest, or ctx ends.
func (a *attempt) passes(ctx context.Context, first *node) bool {
	for i := range a.idle {
		a.idle[i], a.heard[i] = i != first.index, i != first.index
	}
	a.step(ctx)
	if a.answered[first.index] && !a.granted[first.index] {
		a.tally.first = true
		a.idle[first.index] = true
		a.apply(a.take.Expire())
	}
	if a.take.State() != quorum.Asking {
		return false
	}
	for i := range a.idle {
		if i != first.index {
			a.idle[i], a.heard[i] = false, false
		}
	}
	return true
}

// askBy is which argument tells a node after what time it need not answer. What
// comes behind desc is left out where it says nothing.
const askBy = 3

// askArgs are the arguments of the first round.
func (a *attempt) askArgs(proposed int64, call string) []string {
	args := []string{a.owner, redisfmt.Millis(a.req.TTL), redisfmt.Decimal(proposed), "", a.desc}
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
	args = append(args, redisfmt.Letter(a.req.Mode), redisfmt.Decimal(waited), a.how.caller, call, a.how.reason)
	if a.how.only != "" {
		args = append(args, a.how.only)
	}
	return args
}

// step takes one answer. The requests have their own limits. What was granted is given back
// if ctx ends, or the engine is closed.
func (a *attempt) step(ctx context.Context) {
	if !a.hear(ctx.Done(), a.closed.Done()) {
		a.apply(a.take.Expire())
	}
}

// hear takes one answer, and returns false if it is called off first.
func (a *attempt) hear(ended, closed <-chan struct{}) bool {
	select {
	case r := <-a.asked:
		a.open--
		a.onReply(r)
	case r := <-a.raised:
		a.open--
		a.stored(r)
	case <-ended:
		return false
	case <-closed:
		return false
	}
	return true
}

// lingering is how long a lost attempt waits to learn whether anybody won.
const lingering = 5 * time.Millisecond

// awaitStraggler waits for answers that tell nodes that are down, and a collision, from
// a holder: a take can be lost before a majority has answered, since a node that is down
// refuses it like one that is held.
func (a *attempt) awaitStraggler(ctx context.Context) {
	for a.open > 0 && !a.tally.hasMajority() && !a.tally.hopeless() && ctx.Err() == nil && a.closed.Err() == nil {
		a.step(ctx) // each request has its limit
	}
	ctx, cancel := context.WithTimeout(ctx, lingering)
	defer cancel()
	for a.open > 0 && ctx.Err() == nil && a.tally.split() == perhaps && a.closed.Err() == nil {
		a.step(ctx)
	}
}

// onReply takes an answer to the first round.
func (a *attempt) onReply(r reply) {
	n := a.set.nodes[r.node]
	a.heard[r.node] = true
	switch {
	case unknown(r.Err): // it may have granted, or may grant yet
		n.noteOrphan(a.ending(n))
	case r.Err != nil:
		a.idle[r.node] = true
	default:
		a.answered[r.node] = true
	}
	if a.take.State() == quorum.Won && !a.holds.has(a.owner) {
		return // it has been released since, and the release comes to this node next; see asks
	}
	a.vote(r)
}

// ending takes the attempt back on a node. If the node has not answered, the request may
// still be on its way, and until it is of no use any more the node has to know that
// nobody wants it: the release may travel on another connection and be there first.
func (a *attempt) ending(n *node) releaseCall {
	d := releaseCall{name: a.req.Name, owner: a.owner, ttl: a.req.TTL, failed: a.req.MinHold > 0}
	if !a.answered[n.index] {
		d.until = n.clock.by(a.cfg.limit(a.req.TTL))
	}
	return d
}

// stored takes an answer to the second round.
func (a *attempt) stored(r reply) {
	ok, server := affirmed(r.Reply)
	a.apply(a.take.Raised(r.node, ok, server, instant(time.Now())))
}

func (a *attempt) vote(r reply) {
	v := a.tally.vote(r)
	a.granted[r.node] = v.Granted
	a.apply(a.take.Asked(r.node, v, instant(time.Now())))
}

// finish deals with stragglers: what a node grants after the attempt is lost is given
// back, and what it says after the attempt is won may ask for a second round.
func (a *attempt) finish() {
	for a.open > 0 {
		a.hear(nil, nil)
	}
}

// secondLook is after what time the nodes that refused an attempt which was won are asked
// again: those who lost against it have given back by then what they got there.
const secondLook = 50 * time.Millisecond

// refused returns the nodes that refused an attempt which was won.
func (a *attempt) refused() (nodes []*node) {
	if a.take.State() != quorum.Won || a.how.reason != "" {
		return nil
	}
	for i, n := range a.set.nodes {
		if a.answered[i] && !a.granted[i] {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// askAgain asks the nodes that refused a lock which is held once more. Until then it may
// stand on a bare majority, which the failure of one node ends.
func (a *attempt) askAgain() {
	nodes := a.refused()
	if len(nodes) == 0 {
		return
	}
	if !retry.Sleep(a.closed, min(secondLook, a.cfg.limit(a.req.TTL))) {
		return
	}
	for _, n := range nodes {
		a.answered[n.index] = false // this time
	}
	a.how.joins = false // it waits no more
	a.holds.whileHeld(a.owner, func() { a.send(nodes, a.take.Token(), "next") })
	a.finish()
}

// stillQueued returns the nodes that have a request which has its lock in their queues,
// since they did not grant it. They would keep the name for it.
func (a *attempt) stillQueued() (nodes []*node) {
	if a.take.State() != quorum.Won || !a.how.joins {
		return nil
	}
	for i, n := range a.set.nodes {
		if !a.granted[i] {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// apply sends what follows from an answer: the second round to nodes that hold another
// token, and releases to those that granted for nothing.
func (a *attempt) apply(o quorum.Orders) {
	if len(o.Raise) > 0 {
		nodes := make([]*node, len(o.Raise))
		for i, index := range o.Raise {
			nodes[i] = a.set.nodes[index]
		}
		a.open += len(nodes)
		a.set.broadcast(nodes, a.cfg.limit(a.req.TTL), a.raised,
			asking(a.call(a.lua.raise, a.req.Name, a.owner, redisfmt.Decimal(a.take.Token()), redisfmt.Millis(a.req.MinHold))))
	}
	for _, i := range o.Free {
		if !a.idle[i] {
			a.set.nodes[i].free(a.ending(a.set.nodes[i]))
		}
	}
}

var errNoAnswer = errors.New("no answer yet")

// outcome is that of an attempt which is decided. A node that has not answered by then
// is among the causes.
func (a *attempt) outcome(ctx context.Context) outcome {
	if a.take.State() != quorum.Won {
		for i, heard := range a.heard {
			if !heard {
				a.tally.causes.add(a.set.nodes[i], errNoAnswer)
			}
		}
		o := a.tally.outcome(ctx)
		o.owner = a.owner
		return o
	}
	g := driver.Grant{Owner: a.owner, Token: a.take.Token(), Floor: a.take.Floor(), Sent: a.sent, TTL: a.req.TTL}
	return outcome{won: true, owner: a.owner, grant: g}
}
