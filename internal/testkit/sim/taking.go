package sim

import (
	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/quorum"
)

// nobody is no address.
const nobody = 255

// try begins an attempt; from is the address that told of a release, if any.
func (w *World) try(c *client, from uint8) {
	c.state, c.raising = taking, false
	if c.owner == 0 || w.Lacks&FreshLine == 0 {
		w.owners++
		c.owner = w.owners
		w.past = append(w.past, past{})
	}
	if !c.request.open {
		w.want(c)
	}
	c.greatest, c.before, c.called = w.order.greatest, w.order.acquired, w.now
	now := w.instant(c)
	c.last = max(epoch+int64(now.Wall)/1000+5000, c.last+1)
	terms := w.terms
	terms.Shared = c.request.shared
	terms.TwoRound = terms.TwoRound || c.request.atLeast > 0
	if c.lent = c.ttl; w.class.Single && w.rng.chance(300) {
		c.lent = ttl / 4 // as when a waiter is handed the lock: the first renewal makes it a whole lease
	}
	terms.TTL = c.lent
	c.take.Reset(terms, c.last, now)
	if w.Journal != nil {
		w.called(c)
	}
	for i := range w.size {
		n := c.nodes[i]
		c.asked[n], c.mended[n] = w.by(c, n, limit), 0
	}
	w.past[c.owner].asked = w.now
	w.lag(c)
	for i := range w.size {
		w.tell(c, c.nodes[i], c.ask(c.nodes[i], from, now))
	}
	w.alarm(c, int64(limit), evAskLimit, 0)
	w.alarm(c, int64(c.lent-margin), evExpire, 0)
	c.request.joins = c.request.waits // the first attempt only looks
}

// want makes a client want the lock in some way.
func (w *World) want(c *client) {
	w.callers++
	c.request = request{open: true, shared: w.mixed && w.rng.chance(600), caller: w.callers, since: int64(w.instant(c).Mono)}
	c.request.waits = !w.class.Single && w.rng.chance(400)
	if !w.class.Single && w.rng.chance(w.class.Break) {
		c.request.forced, c.request.shared, c.request.waits = true, false, false
	} else if w.rng.chance(50) {
		c.request.atLeast = w.rng.below(int64(maxTTL) / 1000 * 8 / 10)
	}
	w.since = append(w.since, w.now)
}

// ask is the first round's message to a node.
func (c *client) ask(node, from uint8, now hold.Instant) event {
	r := &c.request
	e := event{kind: evAsk, owner: c.owner, token: c.last, floor: int64(c.lent) / 1000, by: c.asked[node]}
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

// toldOf takes news that the name is free.
func (w *World) toldOf(c *client, e *event) {
	r, who := &c.request, Call(e.token)
	if c.state == idle && r.open && r.joins && (who == Call(r.caller) || who == Sharers && r.shared) {
		w.try(c, e.node)
	}
}

// vote takes a node's answer. An attempt that is over gives back what it still
// gets; an older one's answer is treated as that attempt would.
func (w *World) vote(c *client, e *event) {
	granted := Status(e.answer) == Granted
	if e.owner == c.owner {
		c.asked[e.node] = 0
		if sent := c.take.Sent().Mono; w.instant(c).Mono-sent <= limit && sent > c.samples[e.node].at {
			c.samples[e.node] = sample{e.by, sent}
		}
	}
	if e.owner == c.owner && !c.over() {
		v := quorum.Vote{Granted: granted, Token: e.token, Floor: e.floor, Server: uint64(e.server)}
		w.obey(c, c.take.Asked(int(c.index[e.node]), v, w.instant(c)))
	} else if granted && w.Without != quorum.CleanUpLine {
		w.takeBack(c, e.node, e.owner, 0, quiet)
	}
}

// takeBack sends a release, which bars a request that may still arrive.
func (w *World) takeBack(c *client, node uint8, owner Owner, by int64, f flags) {
	w.past[owner].sent |= 1 << node
	w.tell(c, node, event{kind: evRelease, owner: owner, by: by, flags: f})
}

// undo is how an attempt that failed is taken back.
func (c *client) undo() flags {
	if c.request.atLeast > 0 {
		return quiet | failed
	}
	return quiet
}

// obey sends what a take orders, and notices how it ends.
func (w *World) obey(c *client, o quorum.Orders) {
	if len(o.Raise)+len(o.Free) > 0 {
		w.lag(c)
	}
	for _, i := range o.Raise {
		w.tell(c, c.nodes[i], event{kind: evRaise, owner: c.owner, token: c.take.Token(), floor: c.request.atLeast})
	}
	if len(o.Raise) > 0 && !c.raising {
		c.raising = true
		w.alarm(c, int64(limit), evRaiseLimit, 0)
	}
	for _, i := range o.Free {
		w.takeBack(c, c.nodes[i], c.owner, c.asked[c.nodes[i]], c.undo())
	}
	if c.state != taking {
		return
	}
	switch c.take.State() {
	case quorum.Won:
		w.won(c)
	case quorum.Lost:
		w.missed(c)
	}
}

// missed ends an attempt that failed. A request that waits goes on, or gives up.
func (w *World) missed(c *client) {
	w.Tally.Missed++
	w.past[c.owner].lost = true
	if w.Journal != nil {
		w.refused(c)
	}
	if r := &c.request; !r.waits || w.rng.chance(100) {
		if r.open = false; r.joins {
			w.depart(c)
		}
	}
	w.again(c)
}

// depart takes a request out of the nodes' queues.
func (w *World) depart(c *client) {
	for i := range w.size {
		w.tell(c, c.nodes[i], event{kind: evLeave, owner: Owner(c.request.caller)})
	}
}

// won makes a holder of a client.
func (w *World) won(c *client) {
	c.state, c.won = holding, w.now
	c.token, c.floor, c.lease = c.take.Token(), c.take.Floor(), c.take.Sent()
	if now := w.instant(c); c.token <= epoch+int64(now.Wall)/1000+int64(ahead)/1000 || w.Lacks&CapLine != 0 {
		c.last = max(c.last, c.token)
	}
	c.hold = hold.New(hold.Terms{TTL: c.ttl, Margin: w.margin, Leased: true}, c.lease, c.lent)
	w.judge(c)
	if w.Journal != nil {
		w.returned(c)
	}
	if c.request.open = false; c.request.joins {
		w.depart(c)
	}
	w.alarm(c, w.rng.below(20*ms), evCheck, 0)
	switch k := w.rng.below(8); {
	case k < 3 || c.request.forced:
		w.alarm(c, w.rng.below(50*ms), evDone, 0)
	case k < 5:
		w.alarm(c, w.rng.below(term/8), evDone, 0)
	case k < 7 || w.class.Calm: // the others hold it for as long as they can
		w.alarm(c, w.rng.below(3*term), evDone, 0)
	}
	w.act(c, c.hold.Step(hold.Event{Kind: hold.Tick}, w.instant(c)))
}
