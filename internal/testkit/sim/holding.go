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

// act does what a hold asks for.
func (w *World) act(c *client, a hold.Action) {
	if a.Lost {
		w.Tally.Lost++
		w.leave(c)
		if w.rng.chance(500) {
			w.free(c)
		}
		w.again(c)
		return
	}
	if a.Renew {
		w.renew(c)
	}
	if a.Wait > 0 {
		c.timer++
		w.alarm(c, int64(a.Wait)+w.rng.below(int64(a.Slack)), evTick, c.timer)
	}
}

// renew begins a renewal.
func (w *World) renew(c *client) {
	c.attempt++
	c.renewed = w.now
	terms := w.terms
	terms.TTL = c.ttl
	c.renewal.Reset(terms, w.instant(c))
	if w.Lacks&AcquaintLine == 0 {
		c.renewal.Extends(c.lease)
	}
	w.lag(c)
	left, ambush := int64(c.hold.Left(w.instant(c))), w.rng.chance(w.class.Ambush)
	for i := range w.size {
		if ambush && w.rng.chance(500) {
			w.detour = left + w.rng.below(term/3)
		}
		w.tell(c, c.nodes[i], event{kind: evRenew, owner: c.owner, token: c.token, floor: c.maxTTL(), round: c.attempt})
		w.detour = 0
	}
	w.alarm(c, int64(c.ttl/6), evRenewLimit, c.attempt)
	if ambush { // the worst moment: the deadline passes, others come and go, and then the answers arrive
		c.frozen = max(c.frozen, w.now+left+w.rng.below(term/3))
		c.drowsy = w.rng.chance(500)
	}
}

// standing takes an answer to a renewal, which may come when the hold has ended:
// then it must be of no consequence.
func (w *World) standing(c *client, e *event) {
	s := quorum.Standing(e.answer)
	switch {
	case e.owner != c.owner:
	case c.state == holding && e.round == c.attempt:
		w.stands(c, e.node, s, uint64(e.server))
	case c.over() && s == quorum.Renewed:
		h := c.hold
		if w.Lacks&EndedLine != 0 {
			h = hold.New(hold.Terms{TTL: c.ttl, Margin: w.margin, Leased: true}, c.lease, c.ttl)
		}
		if act := h.Step(hold.Event{Kind: hold.Renewed, Sent: c.renewal.Sent()}, w.instant(c)); act != (hold.Action{}) {
			w.violate(Revived, "a late renewal moves client %d, whose hold has ended, to %+v", c.id, act)
		}
	}
}

// stands takes what a node says to a renewal.
func (w *World) stands(c *client, node uint8, s quorum.Standing, server uint64) {
	if c.state != holding {
		return
	}
	if w.class.Single {
		w.plain(c, s)
		return
	}
	open := c.renewal.Result() == quorum.Open
	for _, i := range c.renewal.Heard(int(c.index[node]), s, server, w.instant(c)) {
		w.repair(c, c.nodes[i])
	}
	if !open {
		return
	}
	switch c.renewal.Result() {
	case quorum.Kept:
		w.kept(c, c.renewal.Sent())
	case quorum.Gone:
		w.act(c, c.hold.Step(hold.Event{Kind: hold.Gone, Cause: errGone}, w.instant(c)))
	case quorum.Failed:
		w.act(c, c.hold.Step(hold.Event{Kind: hold.Failed, Cause: errSilent, Jitter: w.rng.fraction()}, w.instant(c)))
	}
}

// repair gives a node a lock back that it lost. The node must do so before the
// lease is over, or not at all.
func (w *World) repair(c *client, node uint8) {
	left := c.hold.Left(w.instant(c))
	if left <= 0 {
		w.violate(Revived, "client %d wants token %d repaired when its lease is over", c.id, c.token)
	}
	c.mended[node] = w.by(c, node, min(limit, left))
	w.lag(c)
	w.tell(c, node, event{kind: evRepair, owner: c.owner, token: c.token, floor: c.maxTTL(), by: c.mended[node]})
}

// plain is a renewal on a single server: its answer is the answer.
func (w *World) plain(c *client, s quorum.Standing) {
	sent := c.renewal.Sent()
	c.attempt++ // later answers do not count
	switch s {
	case quorum.Renewed:
		w.kept(c, sent)
	case quorum.Free, quorum.Taken:
		w.act(c, c.hold.Step(hold.Event{Kind: hold.Gone, Cause: errGone}, w.instant(c)))
	case quorum.Silent:
		w.act(c, c.hold.Step(hold.Event{Kind: hold.Failed, Cause: errSilent, Jitter: w.rng.fraction()}, w.instant(c)))
	}
}

// kept extends a hold. A hold that somebody interrupted must not go on: its
// holder would never learn.
func (w *World) kept(c *client, sent hold.Instant) {
	w.Tally.Renewed++
	act := c.hold.Step(hold.Event{Kind: hold.Renewed, Sent: sent}, w.instant(c))
	if !act.Lost {
		c.lease = sent
		w.interrupted(c)
	}
	w.act(c, act)
}

// release ends a hold.
func (w *World) release(c *client) {
	c.hold.Step(hold.Event{Kind: hold.Released}, w.instant(c))
	w.leave(c)
	w.lag(c)
	w.free(c)
	w.again(c)
}

// leave ends what belongs to a hold.
func (w *World) leave(c *client) {
	if w.Journal != nil {
		w.ends(c)
	}
	c.timer++
	c.attempt++
	c.state = idle
}

func (w *World) free(c *client) {
	for i := range w.size {
		n := c.nodes[i]
		w.takeBack(c, n, c.owner, max(c.asked[n], c.mended[n]), 0)
	}
}

// work writes to the resource if the lock is held, and looks again later.
func (w *World) work(c *client) {
	w.judgeSeats(c)
	if c.hold.Left(w.instant(c)) > 0 {
		w.lag(c) // between the check and the write
		e := event{kind: evWrite, client: c.id, owner: c.owner, token: c.token, floor: c.floor}
		e.round = uint32(c.ordinal<<16 | c.before) // both are small
		if c.request.shared {
			e.flags = shared
		}
		e.at = max(w.now, c.frozen) + w.delay()
		w.queue.push(e)
	}
	w.alarm(c, w.rng.below(term/4), evCheck, 0)
}
