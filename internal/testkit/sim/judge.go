package sim

import "time"

// judge sees all state and detects violated guarantees. Its checks of nodes are in server.go.
type judge struct {
	world  *World
	order  order
	guard  guard
	past   []past  // by owner
	since  []int64 // by caller: when it first requested the lock
	lapsed int     // number of leases that expired
}

// order is what the judge knows about acquisitions and tokens so far.
type order struct {
	acquired         int64    // the number of acquisitions
	whole, exclusive int64    // the numbers of the last one and the last exclusive one, except broken ones
	taken            int64    // the time of the last one
	closed, closedAt int64    // the end of a minimum hold, and when its lock was acquired
	greatest         int64    // the greatest token returned
	recent           [8]int64 // the last tokens returned
}

// past is the history of one attempt to acquire.
type past struct {
	asked       int64  // when the requests were sent
	sent, ended uint16 // bit sets: the addresses to which a release was sent, and the servers that ran one
	lost        bool   // the attempt failed
	broken      bool   // it was broken on at least one node
	adopted     bool   // another client has adopted its lock
}

// guard is the protected resource. It refuses a token smaller than the greatest floor so far. It
// also counts stale writes that a resource without a guard would accept.
type guard struct {
	floor int64
	// any and only are the greatest number of acquisitions before the call of a writer's
	// acquisition: of any writer, and of an exclusive one.
	any, only int64
}

// acquired checks a new acquisition.
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
	j.adopted(c)
	j.order.acquired++
	c.ordinal, j.order.taken = j.order.acquired, w.now
	if j.past[c.owner].broken {
		return // it was broken before its client received the grants
	}
	j.order.whole = c.ordinal
	if !c.request.shared {
		j.order.exclusive = c.ordinal
	}
}

// minHold checks that no minimum hold is in force.
func (j *judge) minHold(c *client) {
	w := j.world
	o := &j.order
	if w.now < o.closed && c.called > o.closedAt && !c.request.forced && c.request.from.owner == 0 {
		w.violate(Early, "client %d got token %d %v before the end of a minimum hold", c.id, c.token, time.Duration(o.closed-w.now))
	}
	hold := c.request.minHold * 1000
	if until := c.called + hold - hold/50; hold > 0 && until > o.closed {
		o.closed, o.closedAt = until, w.now
	}
}

// adopted checks that a lock is adopted once, and by nobody after a later holder that excludes it.
func (j *judge) adopted(c *client) {
	from := c.request.from
	if from.owner == 0 {
		return
	}
	p, later := &j.past[from.owner], j.order.exclusive
	if !from.shared {
		later = j.order.whole
	}
	if p.adopted || later > from.ordinal {
		j.world.violate(Revived, "client %d adopts acquisition %d, which has ended: adopted before %v, last one that excludes it %d",
			c.id, from.ordinal, p.adopted, later)
	}
	p.adopted = true
}

// tokens checks that the token is greater than earlier ones, unique, and not too far in the future.
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
	// If clocks are behind the tokens, each attempt may add one microsecond.
	if jumps := w.stepped || w.class.has(jumpNode); !jumps && c.token > latest+int64(ahead)/1000+int64(w.owners) {
		w.violate(Poisoned, "client %d got token %d, %d ms ahead of all clocks", c.id, c.token, (c.token-latest)/1000)
	}
}

// kept checks that no other client has held the lock since the holder acquired it.
func (j *judge) kept(c *client) {
	other := j.order.whole
	if c.request.shared {
		other = j.order.exclusive
	}
	if j.past[c.owner].broken && c.renewed <= j.order.taken {
		return // the holder learns of a break by its next renewal
	}
	if other > c.ordinal {
		j.world.violate(Overlap, "client %d goes on with token %d although another has had the lock since", c.id, c.token)
	}
}

// write passes a write to the guard and checks the result.
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

// leak checks that the guard accepts no write after a write of a later exclusive acquisition. A
// later shared acquisition does not exclude earlier writers: its floor is a lower bound, and the
// token of an earlier exclusive holder may be equal to it or greater.
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
