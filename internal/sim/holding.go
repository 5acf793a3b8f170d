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
	c.renewal.Reset(w.terms, w.instant(c))
	if w.Lacks&AcquaintLine == 0 {
		c.renewal.Extends(c.lease)
	}
	w.lag(c)
	left, ambush := int64(c.hold.Left(w.instant(c))), w.rng.chance(w.class.Ambush)
	for i := range w.size {
		if ambush && w.rng.chance(500) {
			w.detour = left + w.rng.below(term/3)
		}
		w.tell(c, c.nodes[i], event{kind: evRenew, owner: c.owner, token: c.token, round: c.attempt})
		w.detour = 0
	}
	w.alarm(c, int64(ttl/6), evRenewLimit, c.attempt)
	if ambush { // the worst moment: the deadline passes, others come and go, and then the answers arrive
		c.frozen = max(c.frozen, w.now+left+w.rng.below(term/3))
		c.drowsy = w.rng.chance(500)
	}
}

// stands takes what a node says to a renewal.
func (w *World) stands(c *client, node uint8, s quorum.Standing) {
	if c.state != holding {
		return
	}
	if w.class.Single {
		w.plain(c, s)
		return
	}
	open := c.renewal.Result() == quorum.Open
	for _, i := range c.renewal.Heard(int(c.index[node]), s, w.instant(c)) {
		w.lag(c)
		w.tell(c, c.nodes[i], event{kind: evRepair, owner: c.owner, token: c.token})
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
		w.tell(c, c.nodes[i], event{kind: evRelease, owner: c.owner})
	}
}

// work writes to the resource if the lock is held, and looks again later.
func (w *World) work(c *client) {
	if c.hold.Left(w.instant(c)) > 0 {
		w.lag(c) // between the check and the write
		e := event{kind: evWrite, client: c.id, owner: c.owner, token: c.token, floor: c.floor}
		e.round = uint32(c.ordinal<<16 | c.before) // both are small
		if c.shared {
			e.answer = 1
		}
		e.at = max(w.now, c.frozen) + w.delay()
		w.queue.push(e)
	}
	w.alarm(c, w.rng.below(term/4), evCheck, 0)
}
