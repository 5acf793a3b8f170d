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
	s := &w.servers[e.node]
	if s.downTil > w.now {
		return
	}
	if s.stopped > w.now {
		e.at = s.stopped
		w.queue.push(*e)
		return
	}
	w.respond(s, e)
}

// respond runs a request on a node and sends the answer.
func (w *World) respond(s *server, e *event) {
	now, lease := s.clock(w.now), term/1000
	// An ask has its lease and its set of nodes in the place of the floor.
	out := event{kind: evVote, client: e.client, node: e.node, owner: e.owner, round: e.round}
	shared := e.answer == 1
	switch e.kind {
	case evAsk:
		a := s.Ask(Request{Owner: e.owner, Shared: shared, Proposed: e.token, TTL: e.floor >> 1, Nodes: uint32(e.floor & 1)}, now)
		out.answer, out.token, out.floor = uint8(a.Status), a.Token, a.Floor
	case evRaise:
		out.kind = evRaised
		if s.Raise(e.owner, e.token, now) {
			out.answer = 1
		}
	case evRenew:
		out.kind = evStanding
		out.answer = uint8(s.Renew(e.owner, e.token, lease, now))
	case evRepair:
		s.Repair(e.owner, e.token, shared, lease, now)
		return
	case evRelease:
		s.Release(e.owner, now)
		return
	}
	w.send(w.now, back, out)
}
