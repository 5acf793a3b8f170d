package sim

// server is a node with a clock, an incarnation and a replica.
type server struct {
	Node
	world   *World
	index   uint8
	replica snapshot // the data that survives a power failure or a failover
	drift   int64    // the error of the clock's rate, in parts per million
	offset  int64    // of the clock, in microseconds
	downTil int64    // the end of an outage; requests before it are lost
	stopped int64    // the end of a stop; requests before it wait
}

// snapshot is a copy of a node's data.
type snapshot struct {
	fence  int64
	shared bool
	closed int64
	seats  []Seat
	marker marker
}

// epoch is the start of simulated time, in microseconds. It is not 0, so that clocks can be hours
// behind.
const epoch = 100_000_000_000

// clock reads the node's clock at t (nanoseconds of simulated time).
func (s *server) clock(t int64) int64 { return epoch + s.offset + (t+t/1000*s.drift/1000)/1000 }

// sync brings the replica up to date.
func (s *server) sync() {
	s.replica.seats = append(s.replica.seats[:0], s.Seats...)
	s.replica.fence, s.replica.shared, s.replica.closed, s.replica.marker = s.Fence, s.Shared, s.NotBefore, s.marker
}

// fallBack replaces the data by that of the replica.
func (s *server) fallBack() {
	s.Seats = append(s.Seats[:0], s.replica.seats...)
	s.Fence, s.Shared, s.NotBefore, s.marker = s.replica.fence, s.replica.shared, s.replica.closed, s.replica.marker
	s.loseQueue()
}

// flush deletes all data, like FLUSHALL.
func (s *server) flush() {
	s.Seats, s.Fence, s.NotBefore, s.marker = s.Seats[:0], 0, 0, marker{}
	s.loseQueue()
}

// loseQueue deletes the queue and the bars of released owners.
func (s *server) loseQueue() { s.Bars, s.line, s.first = s.Bars[:0], s.line[:0], first{} }

// restart begins a new incarnation of the server, started at the time t.
func (s *server) restart(t int64) {
	s.life.run += 2
	s.life.repl++
	s.booted = s.clock(t)
}

// failOver promotes the replica, or fails back. From then on the other server of the pair answers,
// which has its own run id.
func (s *server) failOver() {
	s.fallBack()
	s.life.run ^= 1
	s.life.repl++
}

// serve passes a request to the node. The request is lost if the node is down, and waits if the
// node is stopped.
func (s *server) serve(e *event) {
	w := s.world
	if s.downTil > w.now {
		return
	}
	if s.stopped > w.now {
		e.at = s.stopped
		w.queue.push(*e)
		return
	}
	s.respond(e)
	w.judge.leases(s, e.node)
}

// respond runs a request on a node and sends the answer.
func (s *server) respond(e *event) {
	w := s.world
	now := s.clock(w.now)
	out := event{kind: evVote, client: e.client, node: e.node, owner: e.owner, round: e.round, server: s.Server(), by: now}
	switch e.kind {
	case evAsk:
		had := s.find(e.owner) != nil
		a := s.Ask(s.request(e), now)
		for _, o := range a.Broken {
			w.judge.past[o].broken = true
		}
		if a.Status == Granted && !had {
			w.judge.ghost(s, e)
			w.judge.past[e.from].ended |= 1 << s.index
		}
		w.judge.keptFree(s, e, a, now)
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
			w.judge.ghost(s, e)
		}
		return
	case evRelease:
		w.judge.past[e.owner].ended |= 1 << s.index
		end, who := s.Release(Ending{Owner: e.owner, By: e.by, Failed: e.flags&failed != 0, Keep: e.flags&quiet == 0, Aloud: s.index < 2}, now)
		if end == Ended && e.flags&failed != 0 {
			w.judge.leftClosed(s, e.owner, now)
		}
		s.spreadNews(e.node, who)
		return
	case evLeave:
		s.spreadNews(e.node, s.GiveUp(Caller(e.owner), now))
		return
	}
	w.net.send(w.now, back, out)
}

// request returns the Request of an event.
func (s *server) request(e *event) Request {
	c := &s.world.clients[e.client]
	return Request{
		Owner: e.owner, Shared: e.flags&shared != 0, Forced: e.flags&forced != 0, Proposed: e.token, TTL: e.floor, By: e.by,
		Nodes: c.set, MaxTTL: c.maxTTL(), Adopts: e.from != 0, Only: e.from,
		Wait: Wait{
			Joins: e.flags&joins != 0, Caller: Caller(e.round), Waited: e.waited, Since: int64(c.instant().Wall)/1000 + epoch - e.waited,
			First: e.flags&goesFirst != 0, Next: e.flags&goesNext != 0,
		},
	}
}

// spreadNews sends a notification to all clients.
func (s *server) spreadNews(node uint8, who Call) {
	if who == Nobody {
		return
	}
	w := s.world
	w.judge.notified(s, who)
	for i := range w.clients {
		w.net.send(w.now, back, event{kind: evTold, client: uint8(i), node: node, token: int64(who)})
	}
}

// ghostAge is the greatest age at which a request may take effect. It is the sum of the time limit
// of an answer, the same again for the uncertainty about the node's clock, and the error of clock
// rates.
const ghostAge = int64(2*limit + horizon*3/100)

// ghost checks that a node has not granted a lock that its client no longer wants.
func (j *judge) ghost(s *server, e *event) {
	w := j.world
	switch p := &j.past[e.owner]; {
	case e.flags&twice != 0 || w.Lacks&FreshLine != 0: // a duplicated request, or an owner that is used again
	case p.ended>>s.index&1 == 1 && !w.class.has(repoint):
		w.violate(Ghost, "node %d gives owner %d a lock that was taken back before", s.index, e.owner)
	case e.kind == evAsk && w.now-p.asked > ghostAge:
		w.violate(Ghost, "node %d gives owner %d a lock that it asked for %d ms ago", s.index, e.owner, (w.now-p.asked)/ms)
	}
}

// leases checks that every failed attempt was released, and did not end by the expiry of its lease.
func (j *judge) leases(s *server, node uint8) {
	w := j.world
	j.lapsed += len(s.lapsed)
	for _, o := range s.lapsed {
		if p := &j.past[o]; p.lost && p.sent>>node&1 == 0 && !w.class.has(repoint) {
			w.violate(Leftover, "node %d kept the lock of owner %d, whose attempt had failed, to the end of its lease", s.index, o)
		}
	}
	s.lapsed = s.lapsed[:0]
}

// keptFree checks that the reservation of a free name ends in time.
func (j *judge) keptFree(s *server, e *event, a Answer, now int64) {
	if a.Status == Told && s.first.till < now/1000 {
		j.world.violate(Stuck, "node %d keeps a free name from owner %d since %d ms", s.index, e.owner, now/1000-s.first.till)
	}
}

// notified checks that a node has notified the waiter that has waited longest, within half a TTL. It
// does not check classes that suspend machines, because clients cannot measure their waits there.
func (j *judge) notified(s *server, who Call) {
	w := j.world
	if w.class.has(suspendHolder) {
		return
	}
	for _, v := range s.line {
		if who > 0 && j.since[v.caller]+int64(ttl)/2 < j.since[who] {
			w.violate(Overtaken, "node %d tells %d, which came %d ms after %d", s.index, who, (j.since[who]-j.since[v.caller])/ms, v.caller)
			return
		}
	}
}

// leftClosed checks that a failed exclusive take has left no minimum hold.
func (j *judge) leftClosed(s *server, owner Owner, now int64) {
	if s.NotBefore > now {
		j.world.violate(Closed, "node %d stays closed for %d ms after a take of owner %d failed", s.index, (s.NotBefore-now)/1000, owner)
	}
}
