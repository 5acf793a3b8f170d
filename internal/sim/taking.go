package sim

import (
	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/quorum"
)

// try begins an attempt.
func (w *World) try(c *client) {
	c.state, c.raising = taking, false
	if c.owner == 0 || w.Lacks&FreshLine == 0 {
		w.owners++
		c.owner = w.owners
	}
	c.shared = w.mixed && w.rng.chance(600)
	c.greatest, c.before = w.order.greatest, w.order.acquired
	now := w.instant(c)
	c.last = max(epoch+int64(now.Wall)/1000+5000, c.last+1)
	terms := w.terms
	terms.Shared = c.shared
	if c.lent = ttl; w.class.Single && w.rng.chance(300) {
		c.lent = ttl / 4 // as when a waiter is handed the lock: the first renewal makes it a whole lease
	}
	terms.TTL = c.lent
	c.take.Reset(terms, c.last, now)
	if w.Journal != nil {
		w.called(c)
	}
	w.lag(c)
	for i := range w.size {
		w.tell(c, c.nodes[i], event{kind: evAsk, owner: c.owner, token: c.last, floor: int64(c.lent)/1000<<1 | int64(c.set)})
	}
	w.alarm(c, int64(limit), evAskLimit, 0)
	w.alarm(c, int64(c.lent-margin), evExpire, 0)
}

// vote takes a node's answer. An attempt that is over gives back what it still
// gets; an older one's answer is treated as that attempt would.
func (w *World) vote(c *client, e *event) {
	granted := Status(e.answer) == Granted
	if e.owner == c.owner && !c.over() {
		v := quorum.Vote{Granted: granted, Token: e.token, Floor: e.floor}
		w.obey(c, c.take.Asked(int(c.index[e.node]), v, w.instant(c)))
	} else if granted && w.Without != quorum.CleanUpLine {
		w.tell(c, e.node, event{kind: evRelease, owner: e.owner})
	}
}

// obey sends what a take orders, and notices how it ends.
func (w *World) obey(c *client, o quorum.Orders) {
	if len(o.Raise)+len(o.Free) > 0 {
		w.lag(c)
	}
	for _, i := range o.Raise {
		w.tell(c, c.nodes[i], event{kind: evRaise, owner: c.owner, token: c.take.Token()})
	}
	if len(o.Raise) > 0 && !c.raising {
		c.raising = true
		w.alarm(c, int64(limit), evRaiseLimit, 0)
	}
	for _, i := range o.Free {
		w.tell(c, c.nodes[i], event{kind: evRelease, owner: c.owner})
	}
	if c.state != taking {
		return
	}
	switch c.take.State() {
	case quorum.Won:
		w.won(c)
	case quorum.Lost:
		w.Tally.Missed++
		if w.Journal != nil {
			w.missed(c)
		}
		w.again(c)
	}
}

// won makes a holder of a client.
func (w *World) won(c *client) {
	c.state = holding
	c.token, c.floor, c.lease = c.take.Token(), c.take.Floor(), c.take.Sent()
	if now := w.instant(c); c.token <= epoch+int64(now.Wall)/1000+int64(ahead)/1000 || w.Lacks&CapLine != 0 {
		c.last = max(c.last, c.token)
	}
	c.hold = hold.New(hold.Terms{TTL: ttl, Margin: w.margin, Leased: true}, c.lease, c.lent)
	w.judge(c)
	if w.Journal != nil {
		w.returned(c)
	}
	w.alarm(c, w.rng.below(20*ms), evCheck, 0)
	switch k := w.rng.below(8); {
	case k < 3:
		w.alarm(c, w.rng.below(50*ms), evDone, 0)
	case k < 5:
		w.alarm(c, w.rng.below(term/8), evDone, 0)
	case k < 7 || w.class.Calm: // the others hold it for as long as they can
		w.alarm(c, w.rng.below(3*term), evDone, 0)
	}
	w.act(c, c.hold.Step(hold.Event{Kind: hold.Tick}, w.instant(c)))
}
