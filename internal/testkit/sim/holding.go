package sim

import (
	"errors"

	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/quorum"
)

// The causes that a client passes to its hold.
var (
	errGone   = errors.New("gone")
	errSilent = errors.New("no majority answered")
)

// whileHolding handles the events of a client that holds the lock, and late answers to its
// renewals.
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

// act performs the actions that a hold returns.
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
	if ambush { // the worst case: the deadline passes, others hold the lock for a while, and then the answers arrive
		c.frozen = max(c.frozen, w.now+left+w.rng.below(term/3))
		c.drowsy = w.rng.chance(500)
	}
}

// standing handles an answer to a renewal. If the hold has ended meanwhile, the answer must have no
// effect.
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

// stands passes a node's answer to the renewal in progress.
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

// repair restores the lock on a node that has lost it. The node must refuse a repair that arrives
// after the end of the lease.
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

// plain handles the answer to a renewal on a single server, without a majority.
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

// kept extends a hold after a successful renewal. It is a violation if another client has held the
// lock since, because the holder would never learn of it.
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
	w := c.world
	c.hold.Step(hold.Event{Kind: hold.Released}, c.instant())
	c.leave()
	if w.class.Adopt > 0 && c.hold.Cause() == nil && w.rng.chance(w.class.Adopt) {
		w.passed = append(w.passed, passed{c.owner, c.request.shared, c.ordinal})
	} else {
		c.lag()
		c.free()
	}
	c.again()
}

// leave ends the timers and the renewal of a hold.
func (c *client) leave() {
	c.timer++
	c.attempt++
	c.state = idle
}

// free releases the lock on all nodes.
func (c *client) free() {
	for i := range c.world.size {
		n := c.nodes[i]
		c.takeBack(n, c.owner, max(c.asked[n], c.mended[n]), 0)
	}
}

// work writes to the resource if the lock is held, and schedules the next write.
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

// misnamed checks that nodes store the right token of an exclusive holder after its second round
// and before its first renewal. It does so only in classes that lose no messages.
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
