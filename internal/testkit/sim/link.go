package sim

// link is the connection between a client and a node.
type link struct {
	cut     [2]int64 // the end of the cut, by direction
	keeps   bool     // messages sent during a cut arrive after it; otherwise they are lost
	arrived [2]int64 // the arrival of the last message, if messages keep their order
}

// network is the links of all clients to all nodes.
type network struct {
	world  *World
	links  [8][maxNodes]link
	detour int64 // the extra delay of the message that is being sent
}

// The directions.
const (
	there = 0 // to the node
	back  = 1 // to the client
)

// send sends a message at a time. It may be lost, or delivered twice.
func (n *network) send(at int64, dir int, e event) {
	w := n.world
	if !w.class.Calm && w.rng.chance(w.class.Loss) {
		return
	}
	if dir == there && w.rng.chance(w.class.Twice) {
		e.flags |= twice
		n.deliver(at+n.delay(), dir, e)
	}
	n.deliver(at, dir, e)
}

// deliver schedules the arrival of one copy of a message, unless a cut loses it.
func (n *network) deliver(at int64, dir int, e event) {
	w := n.world
	l := &n.links[e.client][e.node]
	if l.cut[dir] > at {
		if !l.keeps {
			return
		}
		at = l.cut[dir]
	}
	e.at = at + n.delay() + n.detour
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

// delay returns how long a message takes: in most cases about a millisecond.
func (n *network) delay() int64 {
	w := n.world
	switch {
	case w.rng.chance(w.class.Slow):
		return w.rng.below(2 * term)
	case w.rng.chance(50):
		return w.rng.below(50 * ms)
	}
	return 100*micro + w.rng.below(2*ms)
}
