package sim

// past is what became of one attempt to acquire.
type past struct {
	asked       int64  // when the nodes were asked
	sent, ended uint16 // the addresses that were sent a release, and the servers that ran one
	lost        bool   // the attempt failed
	broken      bool   // somebody broke it, on some node
}

// ghostAge is how old a request may be that takes effect: the limit of an answer,
// the doubt about the node's clock, which is as much, and clock rates.
const ghostAge = int64(2*limit + horizon*3/100)

// judgeGhost looks whether a node has given an owner a lock that nobody wants.
func (w *World) judgeGhost(s *server, e *event) {
	switch p := &w.past[e.owner]; {
	case e.flags&twice != 0 || w.Lacks&FreshLine != 0: // no network makes two of a request
	case p.ended>>s.index&1 == 1 && !w.class.has(repoint):
		w.violate(Ghost, "node %d gives owner %d a lock that was taken back before", s.index, e.owner)
	case e.kind == evAsk && w.now-p.asked > ghostAge:
		w.violate(Ghost, "node %d gives owner %d a lock that it asked for %d ms ago", s.index, e.owner, (w.now-p.asked)/ms)
	}
}

// judgeLapsed looks whether a lease that ran out is one that nobody took back.
func (w *World) judgeLapsed(s *server, node uint8) {
	w.lapsed += len(s.lapsed)
	for _, o := range s.lapsed {
		if p := &w.past[o]; p.lost && p.sent>>node&1 == 0 && !w.class.has(repoint) {
			w.violate(Leftover, "node %d kept the lock of owner %d, whose attempt had failed, to the end of its lease", s.index, o)
		}
	}
	s.lapsed = s.lapsed[:0]
}

// judgeSeats looks, where nothing is lost, whether nodes know the token of an
// exclusive holder that all have heard of and that has not renewed yet.
func (w *World) judgeSeats(c *client) {
	if age := w.now - c.won; !w.class.Calm || age < 200*ms || age > term/4 {
		return
	}
	for i := range w.size {
		if s := w.servers[i].find(c.owner); s != nil && s.Token != c.token && !c.request.shared {
			w.violate(Misnamed, "node %d shows client %d with token %d, which has %d", i, c.id, s.Token, c.token)
		}
	}
}

// judgeTurn looks whether a free name is kept for longer than it may be.
func (w *World) judgeTurn(s *server, e *event, a Answer, now int64) {
	if a.Status == Told && s.first.till < now/1000 {
		w.violate(Stuck, "node %d keeps a free name from owner %d since %d ms", s.index, e.owner, now/1000-s.first.till)
	}
}

// judgeOrder looks whether whom a node told has waited longest, or almost. A
// client does not know for how long its machine was suspended.
func (w *World) judgeOrder(s *server, who Call) {
	if w.class.has(suspendHolder) {
		return
	}
	for _, v := range s.line {
		if who > 0 && w.since[v.caller]+int64(ttl)/2 < w.since[who] {
			w.violate(Overtaken, "node %d tells %d, which came %d ms after %d", s.index, who, (w.since[who]-w.since[v.caller])/ms, v.caller)
			return
		}
	}
}

// judgeClosed looks whether an exclusive take that failed has left the name closed.
func (w *World) judgeClosed(s *server, owner Owner, now int64) {
	if !s.Shared && s.NotBefore > now {
		w.violate(Closed, "node %d stays closed for %d ms after a take of owner %d failed", s.index, (s.NotBefore-now)/1000, owner)
	}
}
