package sim

import (
	"errors"

	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/quorum"
)

// What the engine says, for holds.
var (
	errGone   = errors.New("gone")
	errSilent = errors.New("no majority answered")
)

// whileHolding handles what happens while the client has the lock, and answers that come
// later.
func (c *client) whileHolding(e *event) {
	switch {
	case e.kind == evStanding:
		c.standing(e)
	case e.owner != c.owner || c.state != holding:
	case e.kind == evTick && e.round == c.timer:
		c.act(c.hold.Step(hold.Event{Kind: hold.Tick}, c.instant()))
	case e.kind == evRenewLimit && e.round == c.attempt:
		for i := range c.world.size {
			c.stands(c.nodes[i], quorum.Silent, 0)
		}
	case e.kind == evCheck:
		c.work()
	case e.kind == evDone:
		c.release()
	}
}

// act does what a hold asks for.
func (c *client) act(a hold.Action) {
	w := c.world
	if a.Lost {
		w.Tally.Lost++
		c.leave()
		if w.rng.chance(500) {
			c.free()
		}
		c.again()
		return
	}
	if a.Renew {
		c.renew()
	}
	if a.Wait > 0 {
		c.timer++
		c.alarm(int64(a.Wait)+w.rng.below(int64(a.Slack)), evTick, c.timer)
	}
}

// renew begins a renewal.
func (c *client) renew() {
	w := c.world
	c.attempt++
	c.renewed = w.now
	terms := w.terms
	terms.TTL = c.ttl
	c.renewal = renewal{Renewal: *quorum.NewRenewal(terms, c.instant()), lacks: w.Lacks}
	if w.Lacks&AcquaintLine == 0 {
		c.renewal.Extends(c.lease)
	}
	c.lag()
	left, ambush := int64(c.hold.Left(c.instant())), w.rng.chance(w.class.Ambush)
	for i := range w.size {
		if ambush && w.rng.chance(500) {
			w.net.detour = left + w.rng.below(term/3)
		}
		c.tell(c.nodes[i], event{kind: evRenew, owner: c.owner, token: c.token, floor: c.maxTTL(), round: c.attempt})
		w.net.detour = 0
	}
	c.alarm(int64(c.ttl/6), evRenewLimit, c.attempt)
	if ambush { // the worst moment: the deadline passes, others come and go, and then the answers arrive
		c.frozen = max(c.frozen, w.now+left+w.rng.below(term/3))
		c.drowsy = w.rng.chance(500)
	}
}

// standing takes an answer to a renewal, which may come when the hold has ended:
// then it must be of no consequence.
func (c *client) standing(e *event) {
	w := c.world
	s := quorum.Standing(e.answer)
	switch {
	case e.owner != c.owner:
	case c.state == holding && e.round == c.attempt:
		c.stands(e.node, s, uint64(e.server))
	case c.over() && s == quorum.Renewed:
		h := c.hold
		if w.Lacks&EndedLine != 0 {
			h = hold.New(hold.Terms{TTL: c.ttl, Margin: w.margin, Leased: true}, c.lease, c.ttl)
		}
		if act := h.Step(hold.Event{Kind: hold.Renewed, Sent: c.renewal.Sent()}, c.instant()); act != (hold.Action{}) {
			w.violate(Revived, "a late renewal moves client %d, whose hold has ended, to %+v", c.id, act)
		}
	}
}

// stands takes what a node says to a renewal.
func (c *client) stands(node uint8, s quorum.Standing, server uint64) {
	w := c.world
	if c.state != holding {
		return
	}
	if w.class.Single {
		c.plain(s)
		return
	}
	open := c.renewal.Result() == quorum.Open
	for _, i := range c.renewal.Heard(int(c.index[node]), s, server, c.instant()) {
		c.repair(c.nodes[i])
	}
	if !open {
		return
	}
	switch c.renewal.Result() {
	case quorum.Kept:
		c.kept(c.renewal.Sent())
	case quorum.Gone:
		c.act(c.hold.Step(hold.Event{Kind: hold.Gone, Cause: errGone}, c.instant()))
	case quorum.Failed:
		c.act(c.hold.Step(hold.Event{Kind: hold.Failed, Cause: errSilent, Jitter: w.rng.fraction()}, c.instant()))
	}
}

// repair gives a node a lock back that it lost. The node must do so before the
// lease is over, or not at all.
func (c *client) repair(node uint8) {
	w := c.world
	left := c.hold.Left(c.instant())
	if left <= 0 {
		w.violate(Revived, "client %d wants token %d repaired when its lease is over", c.id, c.token)
	}
	c.mended[node] = c.notAfter(node, min(limit, left))
	c.lag()
	e := event{kind: evRepair, owner: c.owner, token: c.token, floor: c.maxTTL(), by: c.mended[node]}
	if c.request.shared {
		e.flags = shared
	}
	c.tell(node, e)
}

// plain is a renewal on a single server: its answer is the answer.
func (c *client) plain(s quorum.Standing) {
	w := c.world
	sent := c.renewal.Sent()
	c.attempt++ // later answers do not count
	switch s {
	case quorum.Renewed:
		c.kept(sent)
	case quorum.Free, quorum.Taken:
		c.act(c.hold.Step(hold.Event{Kind: hold.Gone, Cause: errGone}, c.instant()))
	case quorum.Silent:
		c.act(c.hold.Step(hold.Event{Kind: hold.Failed, Cause: errSilent, Jitter: w.rng.fraction()}, c.instant()))
	}
}

// kept extends a hold. A hold that somebody interrupted must not go on: its
// holder would never learn.
func (c *client) kept(sent hold.Instant) {
	w := c.world
	w.Tally.Renewed++
	act := c.hold.Step(hold.Event{Kind: hold.Renewed, Sent: sent}, c.instant())
	if !act.Lost {
		c.lease = sent
		w.judge.kept(c)
	}
	c.act(act)
}

// release ends a hold.
func (c *client) release() {
	c.hold.Step(hold.Event{Kind: hold.Released}, c.instant())
	c.leave()
	c.lag()
	c.free()
	c.again()
}

// leave ends what belongs to a hold.
func (c *client) leave() {
	c.timer++
	c.attempt++
	c.state = idle
}

// free takes the lock back on all nodes.
func (c *client) free() {
	for i := range c.world.size {
		n := c.nodes[i]
		c.takeBack(n, c.owner, max(c.asked[n], c.mended[n]), 0)
	}
}

// work writes to the resource if the lock is held, and looks again later.
func (c *client) work() {
	w := c.world
	w.judge.misnamed(c)
	if c.hold.Left(c.instant()) > 0 {
		c.lag() // between the check and the write
		e := event{kind: evWrite, client: c.id, owner: c.owner, token: c.token, floor: c.floor}
		e.round = uint32(c.ordinal<<16 | c.before) // both are small
		if c.request.shared {
			e.flags = shared
		}
		e.at = max(w.now, c.frozen) + w.net.delay()
		w.queue.push(e)
	}
	c.alarm(w.rng.below(term/4), evCheck, 0)
}

// misnamed looks, where nothing is lost, whether nodes know the token of an
// exclusive holder that all have heard of and that has not renewed yet.
func (j *judge) misnamed(c *client) {
	w := j.world
	if age := w.now - c.won; !w.class.Calm || age < 200*ms || age > term/4 {
		return
	}
	for i := range w.size {
		if s := w.servers[i].find(c.owner); s != nil && s.Token != c.token && !c.request.shared {
			w.violate(Misnamed, "node %d shows client %d with token %d, which has %d", i, c.id, s.Token, c.token)
		}
	}
}
