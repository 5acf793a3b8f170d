package sim

import "time"

// judge sees everything, and says which promises are broken. What it looks at on a node
// stands beside that, in server.go.
type judge struct {
	world  *World
	order  order
	guard  guard
	past   []past  // by owner
	since  []int64 // by caller: since when it has wanted the lock
	lapsed int     // leases that ran out
}

// order is what the tokens so far must be like.
type order struct {
	acquired         int64    // how many acquisitions
	whole, exclusive int64    // which was the last one, and the last exclusive one, that nobody had broken
	taken            int64    // when the last one was
	closed, closedAt int64    // until when a minimum hold lasts, and when it was acquired
	greatest         int64    // the greatest token returned
	recent           [8]int64 // the last tokens returned
}

// past is what became of one attempt to acquire.
type past struct {
	asked       int64  // when the nodes were asked
	sent, ended uint16 // the addresses that were sent a release, and the servers that ran one
	lost        bool   // the attempt failed
	broken      bool   // somebody broke it, on some node
}

// guard is the protected resource: it refuses a token smaller than the floor
// that it has seen, and remembers what it would have done without.
type guard struct {
	floor     int64
	any, only int64 // how many acquisitions there were before a writer's was called: of all writers, of exclusive ones
}

// acquired looks at a new acquisition.
func (j *judge) acquired(c *client) {
	w := j.world
	w.Tally.Acquired++
	if c.hold.Left(c.instant()) <= 0 {
		w.violate(Stillborn, "client %d got token %d with a lease that is over", c.id, c.token)
	}
	for i := range w.clients {
		if d := &w.clients[i]; d != c && !(c.request.shared && d.request.shared) && d.believes() && !j.past[c.owner].broken && !j.past[d.owner].broken {
			w.violate(Overlap, "client %d got token %d while client %d holds %d", c.id, c.token, d.id, d.token)
		}
	}
	j.tokens(c)
	j.minHold(c)
	j.order.acquired++
	c.ordinal, j.order.taken = j.order.acquired, w.now
	if j.past[c.owner].broken {
		return // before it knew that it had it
	}
	j.order.whole = c.ordinal
	if !c.request.shared {
		j.order.exclusive = c.ordinal
	}
}

// minHold looks whether a minimum hold is over.
func (j *judge) minHold(c *client) {
	w := j.world
	o := &j.order
	if w.now < o.closed && c.called > o.closedAt && !c.request.forced {
		w.violate(Early, "client %d got token %d %v before the end of a minimum hold", c.id, c.token, time.Duration(o.closed-w.now))
	}
	hold := c.request.minHold * 1000
	if until := c.called + hold - hold/50; hold > 0 && until > o.closed {
		o.closed, o.closedAt = until, w.now
	}
}

// tokens looks whether the token is the greatest so far, and the first of its kind.
func (j *judge) tokens(c *client) {
	w := j.world
	o := &j.order
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

// kept checks that nobody else had the lock since a holder got it.
func (j *judge) kept(c *client) {
	other := j.order.whole
	if c.request.shared {
		other = j.order.exclusive
	}
	if j.past[c.owner].broken && c.renewed <= j.order.taken {
		return // a break is learned of with the next renewal
	}
	if other > c.ordinal {
		j.world.violate(Overlap, "client %d goes on with token %d although another has had the lock since", c.id, c.token)
	}
}

// write lets the resource judge a write.
func (j *judge) write(e *event) {
	w := j.world
	w.Tally.Writes++
	c, g := &w.clients[e.client], &j.guard
	current := c.owner == e.owner && c.believes()
	if e.token < g.floor {
		w.Tally.Stale++
		if current && w.class.Inside() && !j.past[e.owner].broken {
			w.violate(Refused, "client %d holds %d, and the guard wants %d", c.id, e.token, g.floor)
		}
		return
	}
	g.floor = max(g.floor, e.floor)
	j.leak(e)
}

// leak checks that no write passes after one of an acquisition that was called
// later and was exclusive. A later one that is shared does not promise that: its
// floor is a lower bound, which an exclusive holder before it may still reach.
func (j *judge) leak(e *event) {
	g, shared := &j.guard, e.flags&shared != 0
	ordinal, before := int64(e.round>>16), int64(e.round&0xffff)
	switch {
	case ordinal <= g.only:
		j.world.violate(Leak, "client %d wrote with token %d after one that came later", e.client, e.token)
	case !shared && ordinal <= g.any:
		j.world.Tally.Trailing++
	}
	g.any = max(g.any, before)
	if !shared {
		g.only = max(g.only, before)
	}
}
