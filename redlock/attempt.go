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

// attempt is one attempt to acquire a lock. One goroutine uses it: the caller's until it is
// decided, then one that handles late answers.
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

	asked, raised chan reply // answers to the first and the second round, buffered for all nodes
	open          int        // answers that are still outstanding
	granted       []bool     // by node
	settled       []bool     // the node's outcome is known, or will not be needed
	answered      []bool     // the node has answered
	idle          []bool     // the node was not sent anything, so there is nothing to release

	votes votes
}

// attemptOptions are the options of an attempt.
type attemptOptions struct {
	woken    bool      // a node published that the name is free
	mine     bool      // with woken: this request is the next in line
	inflight inflight  // calls of the whole request; nil for those of the attempt only
	joins    bool      // it joins the nodes' queues
	since    time.Time // when it began to wait
	caller   string    // its name in the queues
	reason   string    // reason of a break; "" for an ordinary request
	only     string    // the only owner to break; without reason the one to adopt from; "" for none
	past     []string  // owners of the request's earlier attempts, all of them lost
}

// ask sends the first round. A woken waiter asks the leader first and contacts the other nodes only
// if the leader grants. Otherwise waiters that are woken together would split the votes.
func (a *attempt) ask(ctx context.Context, proposed int64) {
	terms := a.set.terms(a.req.Mode, a.req.TTL)
	terms.TwoRound = a.req.MinHold > 0 // the second round stores it
	a.take = quorum.NewTake(terms, proposed, instant(a.sent))
	rest, call := a.set.nodes, "-"
	if first := a.set.leader(); first != nil && a.how.woken {
		a.send([]*node{first}, proposed, "first")
		if !a.how.mine && !a.passes(ctx, first) { // with mine the leader has chosen this request, so no other one asks now
			return
		}
		rest, call = slices.DeleteFunc(slices.Clone(rest), func(n *node) bool { return n == first }), "next"
	}
	a.send(rest, proposed, call)
}

// send sends the acquire call to nodes.
func (a *attempt) send(nodes []*node, proposed int64, call string) {
	args, limit := a.askArgs(proposed, call), a.cfg.limit(a.req.TTL)
	a.open += len(nodes)
	a.set.broadcast(nodes, limit, a.asked, a.how.inflight.under(nodes, limit, func(ctx context.Context, n *node) redisconn.Reply {
		by, err := n.notAfter(ctx, limit)
		if err != nil {
			return redisconn.Reply{Err: err}
		}
		mine := slices.Clone(args)
		mine[askBy] = redisfmt.Decimal(by)
		return n.ask(ctx, a.call(a.lua.ask, a.req.Name, mine...))[0]
	}))
}

// passes waits for the leader's vote, and reports whether to ask the other nodes. Without it the
// attempt is lost, also if ctx ends.
func (a *attempt) passes(ctx context.Context, first *node) bool {
	for i := range a.idle {
		a.idle[i], a.settled[i] = i != first.index, i != first.index
	}
	a.step(ctx)
	if a.answered[first.index] && !a.granted[first.index] {
		a.votes.first = true
		a.idle[first.index] = true
		a.apply(a.take.Expire())
	}
	if a.take.State() != quorum.Asking {
		return false
	}
	for i := range a.idle {
		if i != first.index {
			a.idle[i], a.settled[i] = false, false
		}
	}
	return true
}

// askBy is the index of the argument with the latest time at which a node may serve the request.
// Arguments after desc are omitted if they have their default.
const askBy = 3

// askArgs returns the arguments of the first round.
func (a *attempt) askArgs(proposed int64, call string) []string {
	args := []string{a.owner, redisfmt.Millis(a.req.TTL), redisfmt.Decimal(proposed), "", a.desc}
	waited := int64(-1)
	if a.how.joins {
		waited = time.Since(a.how.since).Microseconds()
	}
	switch {
	case a.how.reason != "":
		call = "break"
	case a.how.only != "":
		call = "adopt"
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

// step handles one answer; calls have their own time limits. If ctx ends or the engine is closed,
// whatever was granted is released.
func (a *attempt) step(ctx context.Context) {
	if !a.handleAnswer(ctx.Done(), a.closed.Done()) {
		a.apply(a.take.Expire())
	}
}

// handleAnswer handles one answer. It returns false if ended or closed is closed first.
func (a *attempt) handleAnswer(ended, closed <-chan struct{}) bool {
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

// lingering is how long a lost attempt waits to learn whether another client won.
const lingering = 5 * time.Millisecond

// awaitStraggler waits for further answers, which tell a holder from unreachable nodes and from
// split votes. An attempt can be lost before a majority has answered, because an unreachable node
// counts as a refusal.
func (a *attempt) awaitStraggler(ctx context.Context) {
	for a.open > 0 && !a.votes.hasMajority() && !a.votes.hopeless() && ctx.Err() == nil && a.closed.Err() == nil {
		a.step(ctx) // each call has its time limit
	}
	ctx, cancel := context.WithTimeout(ctx, lingering)
	defer cancel()
	for a.open > 0 && ctx.Err() == nil && a.votes.split() == perhaps && a.closed.Err() == nil {
		a.step(ctx)
	}
}

// onReply handles an answer to the first round.
func (a *attempt) onReply(r reply) {
	n := a.set.nodes[r.node]
	a.settled[r.node] = true
	switch {
	case unknown(r.Err): // it may have granted, or may still do so
		n.noteOrphan(a.ending(n))
	case r.Err != nil:
		a.idle[r.node] = true
	default:
		a.answered[r.node] = true
	}
	if a.take.State() == quorum.Won && !a.holds.has(a.owner) {
		return // it was released meanwhile, and the release is sent to this node next; see inflight
	}
	a.vote(r)
}

// ending returns the call that releases the attempt on a node. If the node has not answered, the
// request may still be on its way on another connection, so the call also bars it until its time is
// up.
func (a *attempt) ending(n *node) releaseCall {
	d := releaseCall{name: a.req.Name, owner: a.owner, ttl: a.req.TTL, failed: a.req.MinHold > 0}
	if !a.answered[n.index] {
		d.until = n.clock.by(a.cfg.limit(a.req.TTL))
	}
	return d
}

// stored handles an answer to the second round.
var errNotStored = errors.New("it has not stored the token of its grant")

func (a *attempt) stored(r reply) {
	ok, server := affirmed(r.Reply)
	if !ok {
		err := r.Err
		if err == nil {
			err = errNotStored
		}
		a.votes.nodeErrors.add(a.set.nodes[r.node], err)
	}
	a.apply(a.take.Raised(r.node, ok, server, instant(time.Now())))
}

func (a *attempt) vote(r reply) {
	v := a.votes.read(r)
	a.granted[r.node] = v.Granted
	a.apply(a.take.Asked(r.node, v, instant(time.Now())))
}

// finish handles late answers. A grant after the attempt was lost is released. A vote after it was
// won may require a second round.
func (a *attempt) finish() {
	for a.open > 0 {
		a.handleAnswer(nil, nil)
	}
}

// secondLook is when the nodes that refused a won attempt are asked again. By then the losing
// clients have released what they got there.
const secondLook = 50 * time.Millisecond

// refused returns the nodes that refused a won attempt.
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

// askAgain asks the nodes that refused a won attempt once more. Without them the lock may depend on
// a bare majority, which the failure of one node ends.
func (a *attempt) askAgain() {
	nodes := a.refused()
	if len(nodes) == 0 {
		return
	}
	if !retry.Sleep(a.closed, min(secondLook, a.cfg.limit(a.req.TTL))) {
		return
	}
	for _, n := range nodes {
		a.answered[n.index] = false // until they answer again
	}
	a.how.joins, a.how.only = false, "" // it no longer waits, and has adopted
	a.holds.whileHeld(a.owner, func() { a.send(nodes, a.take.Token(), "next") })
	a.finish()
}

// stillQueued returns the nodes that did not grant a won attempt and therefore still have it in
// their queues, where it would block other requests.
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

// apply executes what follows from an answer: a second round on nodes that have another token, and
// releases on nodes whose grant is not needed.
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

// outcome returns the outcome of a decided attempt. Nodes that have not answered are among the
// causes.
func (a *attempt) outcome(ctx context.Context) outcome {
	if a.take.State() != quorum.Won {
		for i, settled := range a.settled {
			if !settled {
				a.votes.nodeErrors.add(a.set.nodes[i], errNoAnswer)
			}
		}
		o := a.votes.outcome(ctx)
		o.owner = a.owner
		return o
	}
	g := driver.Grant{Owner: a.owner, Token: a.take.Token(), Floor: a.take.Floor(), Sent: a.sent, TTL: a.req.TTL}
	return outcome{won: true, owner: a.owner, grant: g}
}
