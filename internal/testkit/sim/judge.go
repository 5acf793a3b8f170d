package sim

import "time"

// guard is the protected resource: it refuses a token smaller than the floor
// that it has seen, and remembers what it would have done without.
type guard struct {
	floor     int64
	any, only int64 // how many acquisitions there were before a writer's was called: of all writers, of exclusive ones
}

// believes reports whether a client holds the lock as far as it knows.
func (w *World) believes(c *client) bool {
	return c.state == holding && !c.hold.Ended() && c.hold.Left(w.instant(c)) > 0
}

// judge looks at a new acquisition.
func (w *World) judge(c *client) {
	w.Tally.Acquired++
	if c.hold.Left(w.instant(c)) <= 0 {
		w.violate(Stillborn, "client %d got token %d with a lease that is over", c.id, c.token)
	}
	for i := range w.clients {
		if d := &w.clients[i]; d != c && !(c.request.shared && d.request.shared) && w.believes(d) && !w.past[c.owner].broken && !w.past[d.owner].broken {
			w.violate(Overlap, "client %d got token %d while client %d holds %d", c.id, c.token, d.id, d.token)
		}
	}
	w.judgeToken(c)
	w.judgeHold(c)
	w.order.acquired++
	c.ordinal, w.order.taken = w.order.acquired, w.now
	if w.past[c.owner].broken {
		return // before it knew that it had it
	}
	w.order.whole = c.ordinal
	if !c.request.shared {
		w.order.exclusive = c.ordinal
	}
}

// judgeHold looks whether a minimum hold is over.
func (w *World) judgeHold(c *client) {
	o := &w.order
	if w.now < o.closed && c.called > o.closedAt && !c.request.forced {
		w.violate(Early, "client %d got token %d %v before the end of a minimum hold", c.id, c.token, time.Duration(o.closed-w.now))
	}
	hold := c.request.atLeast * 1000
	if until := c.called + hold - hold/50; hold > 0 && until > o.closed {
		o.closed, o.closedAt = until, w.now
	}
}

func (w *World) judgeToken(c *client) {
	o := &w.order
	if c.token <= c.greatest {
		w.violate(Disorder, "client %d got token %d after %d had been returned", c.id, c.token, c.greatest)
	}
	for _, t := range o.recent {
		if t == c.token {
			w.violate(Disorder, "client %d got token %d, which is not the first", c.id, c.token)
		}
	}
	o.recent[o.acquired%int64(len(o.recent))] = c.token
	o.greatest = max(o.greatest, c.token)
	latest := int64(0)
	for i := range w.servers {
		latest = max(latest, w.servers[i].clock(w.now))
	}
	// Every attempt adds one microsecond if clocks stand behind the tokens.
	if jumps := w.stepped || w.class.has(jumpNode); !jumps && c.token > latest+int64(ahead)/1000+int64(w.owners) {
		w.violate(Poisoned, "client %d got token %d, %d ms ahead of all clocks", c.id, c.token, (c.token-latest)/1000)
	}
}

// interrupted checks that nobody else had the lock since a holder got it.
func (w *World) interrupted(c *client) {
	other := w.order.whole
	if c.request.shared {
		other = w.order.exclusive
	}
	if w.past[c.owner].broken && c.renewed <= w.order.taken {
		return // a break is learned of with the next renewal
	}
	if other > c.ordinal {
		w.violate(Overlap, "client %d goes on with token %d although another has had the lock since", c.id, c.token)
	}
}

// write lets the resource judge a write.
func (w *World) write(e *event) {
	w.Tally.Writes++
	c, g := &w.clients[e.client], &w.guard
	current := c.owner == e.owner && w.believes(c)
	if w.Journal != nil {
		w.wrote(e, e.token >= g.floor)
	}
	if e.token < g.floor {
		w.Tally.Stale++
		if current && w.class.Inside() && !w.past[e.owner].broken {
			w.violate(Refused, "client %d holds %d, and the guard wants %d", c.id, e.token, g.floor)
		}
		return
	}
	g.floor = max(g.floor, e.floor)
	w.leak(e)
}

// leak checks that no write passes after one of an acquisition that was called
// later and was exclusive. A later one that is shared does not promise that: its
// floor is a lower bound, which an exclusive holder before it may still reach.
func (w *World) leak(e *event) {
	g, shared := &w.guard, e.flags&shared != 0
	ordinal, before := int64(e.round>>16), int64(e.round&0xffff)
	switch {
	case ordinal <= g.only:
		w.violate(Leak, "client %d wrote with token %d after one that came later", e.client, e.token)
	case !shared && ordinal <= g.any:
		w.Tally.Trailing++
	}
	g.any = max(g.any, before)
	if !shared {
		g.only = max(g.only, before)
	}
}
