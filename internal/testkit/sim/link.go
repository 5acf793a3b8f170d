package sim

// link is the way between a client and a node, and back.
type link struct {
	cut     [2]int64 // until when, there and back
	keeps   bool     // messages of a cut link arrive when it is mended, not never
	arrived [2]int64 // when the last message arrives, if they keep their order
}

// The directions.
const (
	there = 0
	back  = 1
)

// send puts a message on a link at a moment; it may be lost, or arrive twice.
func (w *World) send(at int64, dir int, e event) {
	if !w.class.Calm && w.rng.chance(w.class.Loss) {
		return
	}
	if dir == there && w.rng.chance(w.class.Twice) {
		e.flags |= twice
		w.deliver(at+w.delay(), dir, e)
	}
	w.deliver(at, dir, e)
}

func (w *World) deliver(at int64, dir int, e event) {
	l := &w.links[e.client][e.node]
	if l.cut[dir] > at {
		if !l.keeps {
			return
		}
		at = l.cut[dir]
	}
	e.at = at + w.delay() + w.detour
	if dir == there && w.rng.chance(w.class.Late) || e.kind == evRepair && w.rng.chance(w.class.Ambush) {
		e.at += w.rng.below(term + term/4)
		if w.rng.chance(125) {
			e.at += w.rng.below(2 * term)
		}
	}
	if w.class.Calm {
		e.at = max(e.at, l.arrived[dir]+1)
		l.arrived[dir] = e.at
	}
	w.queue.push(e)
}

// delay is how long a message takes: mostly a millisecond or so.
func (w *World) delay() int64 {
	switch {
	case w.rng.chance(w.class.Slow):
		return w.rng.below(2 * term)
	case w.rng.chance(50):
		return w.rng.below(50 * ms)
	}
	return 100*micro + w.rng.below(2*ms)
}

// serve lets a node answer a request.
func (w *World) serve(e *event) {
	s := &w.servers[w.clients[e.client].leads[e.node]]
	if s.downTil > w.now {
		return
	}
	if s.stopped > w.now {
		e.at = s.stopped
		w.queue.push(*e)
		return
	}
	w.respond(s, e)
	w.judgeLapsed(s, e.node)
}

// respond runs a request on a node and sends the answer.
func (w *World) respond(s *server, e *event) {
	now := s.clock(w.now)
	out := event{kind: evVote, client: e.client, node: e.node, owner: e.owner, round: e.round, server: s.Server(), by: now}
	switch e.kind {
	case evAsk:
		had := s.find(e.owner) != nil
		a := s.Ask(w.request(e), now)
		for _, o := range a.Broken {
			w.past[o].broken = true
		}
		if a.Status == Granted && !had {
			w.judgeGhost(s, e)
		}
		w.judgeTurn(s, e, a, now)
		out.answer, out.token, out.floor = uint8(a.Status), a.Token, a.Floor
	case evRaise:
		out.kind = evRaised
		if s.Raise(e.owner, e.token, e.floor, now) {
			out.answer = 1
		}
	case evRenew:
		out.kind = evStanding
		out.answer = uint8(s.Renew(e.owner, e.token, e.floor, now))
	case evRepair:
		if had := s.find(e.owner) != nil; s.Repair(e.owner, e.token, e.flags&shared != 0, e.floor, e.by, now) && !had {
			w.judgeGhost(s, e)
		}
		return
	case evRelease:
		w.past[e.owner].ended |= 1 << s.index
		ok, who := s.Release(Ending{Owner: e.owner, By: e.by, Failed: e.flags&failed != 0, Keep: e.flags&quiet == 0, Aloud: s.index < 2}, now)
		if ok && e.flags&failed != 0 {
			w.judgeClosed(s, e.owner, now)
		}
		w.spreadNews(s, e.node, who)
		return
	case evLeave:
		w.spreadNews(s, e.node, s.GiveUp(Caller(e.owner), now))
		return
	}
	w.send(w.now, back, out)
}

// request reads an ask.
func (w *World) request(e *event) Request {
	c := &w.clients[e.client]
	return Request{
		Owner: e.owner, Shared: e.flags&shared != 0, Forced: e.flags&forced != 0, Proposed: e.token, TTL: e.floor, By: e.by,
		Nodes: c.set, MaxTTL: c.maxTTL(),
		Wait: Wait{
			Joins: e.flags&joins != 0, Caller: Caller(e.round), Waited: e.waited, Since: int64(w.instant(c).Wall)/1000 + epoch - e.waited,
			First: e.flags&goesFirst != 0, Next: e.flags&goesNext != 0,
		},
	}
}

// spreadNews tells all clients whose turn it is.
func (w *World) spreadNews(s *server, node uint8, who Call) {
	if who == Nobody {
		return
	}
	w.judgeOrder(s, who)
	for i := range w.clients {
		w.send(w.now, back, event{kind: evTold, client: uint8(i), node: node, token: int64(who)})
	}
}
