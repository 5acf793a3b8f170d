package sim

import (
	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/quorum"
)

// nobody stands for no address.
const nobody = 255

// whileTaking handles the events of a client that acquires the lock, and late answers.
func (c *client) whileTaking(e *event) {
	switch e.kind {
	case evVote:
		c.vote(e)
		return
	case evTold:
		c.toldOf(e)
		return
	case evTry:
		if e.round == c.turn && c.state == idle {
			c.try(nobody)
		}
		return
	}
	if e.owner != c.owner {
		return
	}
	switch e.kind {
	case evRaised:
		c.obey(c.take.Raised(int(c.index[e.node]), e.answer == 1, uint64(e.server), c.instant()))
	case evAskLimit:
		for i := range c.world.size {
			c.obey(c.take.Asked(i, quorum.Vote{}, c.instant()))
		}
	case evRaiseLimit:
		for i := range c.world.size {
			c.obey(c.take.Raised(i, false, 0, c.instant()))
		}
	case evExpire:
		c.obey(c.take.Expire())
	}
}

// try begins an attempt. from is the address that sent a notification of a release, or nobody.
func (c *client) try(from uint8) {
	w := c.world
	c.state, c.raising = taking, false
	if c.owner == 0 || w.Lacks&FreshLine == 0 {
		w.owners++
		c.owner = w.owners
		w.judge.past = append(w.judge.past, past{})
	}
	if !c.request.open {
		c.want()
	}
	c.greatest, c.before, c.called = w.judge.order.greatest, w.judge.order.acquired, w.now
	now := c.instant()
	c.last = max(epoch+int64(now.Wall)/1000+5000, c.last+1)
	terms := w.terms
	terms.Shared = c.request.shared || w.Lacks&FloorLine != 0
	terms.TwoRound = terms.TwoRound || c.request.minHold > 0
	if c.lent = c.ttl; w.class.Single && w.rng.chance(300) {
		c.lent = ttl / 4 // like a hand-over: the first renewal extends it to a whole TTL
	}
	terms.TTL = c.lent
	c.take = take{Take: *quorum.NewTake(terms, c.last, now), lacks: w.Lacks, nodes: w.size}
	for i := range w.size {
		n := c.nodes[i]
		c.asked[n], c.mended[n] = c.notAfter(n, limit), 0
	}
	w.judge.past[c.owner].asked = w.now
	c.lag()
	for i := range w.size {
		c.tell(c.nodes[i], c.ask(c.nodes[i], from, now))
	}
	c.alarm(int64(limit), evAskLimit, 0)
	c.alarm(int64(c.lent-margin), evExpire, 0)
	c.request.joins = c.request.waits // the first attempt does not join the queue
}

// want begins a request with random options.
func (c *client) want() {
	w := c.world
	w.callers++
	c.request = request{open: true, shared: w.mixed && w.rng.chance(600), caller: w.callers, since: int64(c.instant().Mono)}
	c.request.waits = !w.class.Single && w.rng.chance(400)
	if w.class.Adopt > 0 && len(w.passed) > 0 && w.rng.chance(w.class.Adopt) {
		c.request.from = w.passed[len(w.passed)-1-int(w.rng.below(min(int64(len(w.passed)), 3)))]
		c.request.shared, c.request.waits = c.request.from.shared, false
	} else if !w.class.Single && w.rng.chance(w.class.Break) {
		c.request.forced, c.request.shared, c.request.waits = true, false, false
	} else if w.rng.chance(50) {
		if minHold := w.rng.below(int64(maxTTL) / 1000 * 8 / 10); !c.request.shared {
			c.request.minHold = minHold
		}
	}
	w.judge.since = append(w.judge.since, w.now)
}

// ask returns the first round's message to a node.
func (c *client) ask(node, from uint8, now hold.Instant) event {
	r := &c.request
	e := event{kind: evAsk, owner: c.owner, token: c.last, floor: int64(c.lent) / 1000, by: c.asked[node], from: c.request.from.owner}
	if r.shared {
		e.flags |= shared
	}
	if r.forced {
		e.flags |= forced
	}
	if r.waits {
		e.round, e.waited = uint32(r.caller), (int64(now.Mono)-r.since)/1000
	}
	if r.joins {
		e.flags |= joins
	}
	switch from {
	case nobody:
	case node:
		e.flags |= goesFirst
	default:
		e.flags |= goesNext
	}
	return e
}

// toldOf handles a notification that the name is free.
func (c *client) toldOf(e *event) {
	r, who := &c.request, Call(e.token)
	if c.state == idle && r.open && r.joins && (who == Call(r.caller) || who == Sharers && r.shared) {
		c.try(e.node)
	}
}

// vote handles a node's answer. If the attempt is over, or the answer belongs to an earlier
// attempt, the client releases what was granted.
func (c *client) vote(e *event) {
	w := c.world
	granted := Status(e.answer) == Granted
	if e.owner == c.owner {
		c.asked[e.node] = 0
		if sent := c.take.Sent().Mono; c.instant().Mono-sent <= limit && sent > c.samples[e.node].at {
			c.samples[e.node] = sample{e.by, sent}
		}
	}
	if e.owner == c.owner && !c.over() {
		v := quorum.Vote{Granted: granted, Token: e.token, Floor: e.floor, Server: uint64(e.server)}
		c.obey(c.take.Asked(int(c.index[e.node]), v, c.instant()))
	} else if granted && w.Lacks&CleanUpLine == 0 {
		c.takeBack(e.node, e.owner, 0, quiet)
	}
}

// takeBack sends a release. It also makes the node refuse a request of the owner that arrives
// later.
func (c *client) takeBack(node uint8, owner Owner, by int64, f flags) {
	c.world.judge.past[owner].sent |= 1 << node
	c.tell(node, event{kind: evRelease, owner: owner, by: by, flags: f})
}

// obey sends the requests that a take orders, and handles the end of the take.
func (c *client) obey(o quorum.Orders) {
	if len(o.Raise)+len(o.Free) > 0 {
		c.lag()
	}
	for _, i := range o.Raise {
		c.tell(c.nodes[i], event{kind: evRaise, owner: c.owner, token: c.take.Token(), floor: c.request.minHold})
	}
	if len(o.Raise) > 0 && !c.raising {
		c.raising = true
		c.alarm(int64(limit), evRaiseLimit, 0)
	}
	undo := quiet
	if c.request.minHold > 0 { // also remove the minimum hold
		undo |= failed
	}
	for _, i := range o.Free {
		c.takeBack(c.nodes[i], c.owner, c.asked[c.nodes[i]], undo)
	}
	if c.state != taking {
		return
	}
	switch c.take.State() {
	case quorum.Won:
		c.begin()
	case quorum.Lost:
		c.missed()
	}
}

// missed handles a failed attempt. A waiting request is repeated, or gives up with a probability of
// one in ten.
func (c *client) missed() {
	w := c.world
	w.Tally.Missed++
	w.judge.past[c.owner].lost = true
	if r := &c.request; !r.waits || w.rng.chance(100) {
		if r.open = false; r.joins {
			c.depart()
		}
	}
	c.again()
}

// depart removes a request from the nodes' queues.
func (c *client) depart() {
	for i := range c.world.size {
		c.tell(c.nodes[i], event{kind: evLeave, owner: Owner(c.request.caller)})
	}
}

// begin makes the client a holder.
func (c *client) begin() {
	w := c.world
	c.state, c.won = holding, w.now
	c.token, c.floor, c.lease = c.take.Token(), c.take.Floor(), c.take.Sent()
	if now := c.instant(); c.token <= epoch+int64(now.Wall)/1000+int64(ahead)/1000 || w.Lacks&CapLine != 0 {
		c.last = max(c.last, c.token)
	}
	c.hold = hold.New(hold.Terms{TTL: c.ttl, Margin: w.margin, Leased: true}, c.lease, c.lent)
	w.judge.acquired(c)
	if c.request.open = false; c.request.joins {
		c.depart()
	}
	c.alarm(w.rng.below(20*ms), evCheck, 0)
	switch k := w.rng.below(8); {
	case k < 3 || c.request.forced:
		c.alarm(w.rng.below(50*ms), evDone, 0)
	case k < 5:
		c.alarm(w.rng.below(term/8), evDone, 0)
	case k < 7 || w.class.Calm: // without this timer, a client holds the lock until it loses it
		c.alarm(w.rng.below(3*term), evDone, 0)
	}
	c.act(c.hold.Step(hold.Event{Kind: hold.Tick}, c.instant()))
}
