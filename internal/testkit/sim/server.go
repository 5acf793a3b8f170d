package sim

// server is a node with a clock, a life and a replica.
type server struct {
	Node
	world   *World
	index   uint8
	replica snapshot // what survives a power cut or a failover
	drift   int64    // how fast the clock runs, in parts per million beside 1
	offset  int64    // of the clock, in microseconds
	downTil int64    // nothing arrives before
	stopped int64    // what arrives before waits until then
}

// snapshot is a copy of what a node remembers.
type snapshot struct {
	fence  int64
	shared bool
	closed int64
	seats  []Seat
	marker marker
}

// epoch is when simulated time begins, in microseconds, so that clocks can be
// hours behind.
const epoch = 100_000_000_000

// clock reads the node's clock at t (nanoseconds of simulated time).
func (s *server) clock(t int64) int64 { return epoch + s.offset + (t+t/1000*s.drift/1000)/1000 }

// sync brings the replica up to date.
func (s *server) sync() {
	s.replica.seats = append(s.replica.seats[:0], s.Seats...)
	s.replica.fence, s.replica.shared, s.replica.closed, s.replica.marker = s.Fence, s.Shared, s.NotBefore, s.marker
}

// fallBack returns to what the replica knows.
func (s *server) fallBack() {
	s.Seats = append(s.Seats[:0], s.replica.seats...)
	s.Fence, s.Shared, s.NotBefore, s.marker = s.replica.fence, s.replica.shared, s.replica.closed, s.replica.marker
	s.loseQueue()
}

// flush forgets everything, as FLUSHALL does.
func (s *server) flush() {
	s.Seats, s.Fence, s.NotBefore, s.marker = s.Seats[:0], 0, 0, marker{}
	s.loseQueue()
}

// loseQueue forgets who waits, and what was taken back.
func (s *server) loseQueue() { s.Bars, s.line, s.first = s.Bars[:0], s.line[:0], first{} }

// restart begins another life of the server, by the time t.
func (s *server) restart(t int64) {
	s.life.run += 2
	s.life.repl++
	s.booted = s.clock(t)
}

// failOver promotes the replica, or fails back: the other server of the pair
// answers, whose run id is the other of two.
func (s *server) failOver() {
	s.fallBack()
	s.life.run ^= 1
	s.life.repl++
}

// serve lets a node answer a request, if it is up.
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

// request reads an ask.
func (s *server) request(e *event) Request {
	c := &s.world.clients[e.client]
	return Request{
		Owner: e.owner, Shared: e.flags&shared != 0, Forced: e.flags&forced != 0, Proposed: e.token, TTL: e.floor, By: e.by,
		Nodes: c.set, MaxTTL: c.maxTTL(),
		Wait: Wait{
			Joins: e.flags&joins != 0, Caller: Caller(e.round), Waited: e.waited, Since: int64(c.instant().Wall)/1000 + epoch - e.waited,
			First: e.flags&goesFirst != 0, Next: e.flags&goesNext != 0,
		},
	}
}

// spreadNews tells all clients whose turn it is.
func (s *server) spreadNews(node uint8, who Call) {
	if who == Nobody {
		return
	}
	w := s.world
	w.judge.told(s, who)
	for i := range w.clients {
		w.net.send(w.now, back, event{kind: evTold, client: uint8(i), node: node, token: int64(who)})
	}
}

// ghostAge is how old a request may be that takes effect: the limit of an answer,
// the doubt about the node's clock, which is as much, and clock rates.
const ghostAge = int64(2*limit + horizon*3/100)

// ghost looks whether a node has given an owner a lock that nobody wants.
func (j *judge) ghost(s *server, e *event) {
	w := j.world
	switch p := &j.past[e.owner]; {
	case e.flags&twice != 0 || w.Lacks&FreshLine != 0: // no network makes two of a request
	case p.ended>>s.index&1 == 1 && !w.class.has(repoint):
		w.violate(Ghost, "node %d gives owner %d a lock that was taken back before", s.index, e.owner)
	case e.kind == evAsk && w.now-p.asked > ghostAge:
		w.violate(Ghost, "node %d gives owner %d a lock that it asked for %d ms ago", s.index, e.owner, (w.now-p.asked)/ms)
	}
}

// leases looks whether a lease that ran out is one that nobody took back.
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

// keptFree looks whether a free name is kept for longer than it may be.
func (j *judge) keptFree(s *server, e *event, a Answer, now int64) {
	if a.Status == Told && s.first.till < now/1000 {
		j.world.violate(Stuck, "node %d keeps a free name from owner %d since %d ms", s.index, e.owner, now/1000-s.first.till)
	}
}

// told looks whether whom a node told has waited longest, or almost. A
// client does not know for how long its machine was suspended.
func (j *judge) told(s *server, who Call) {
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

// leftClosed looks whether an exclusive take that failed has left the name closed.
func (j *judge) leftClosed(s *server, owner Owner, now int64) {
	if s.NotBefore > now {
		j.world.violate(Closed, "node %d stays closed for %d ms after a take of owner %d failed", s.index, (s.NotBefore-now)/1000, owner)
	}
}
