package sim

// marker is the key that tells which incarnation granted the locks.
type marker struct {
	exists  bool
	nodes   uint32
	longest int64 // the greatest MaxTTL of the clients
	known   bool  // the quarantine for life is over
	life    incarnation
	seen    incarnation // the incarnation in quarantine
	since   int64       // the start of the quarantine
}

// Declare makes the node vote immediately, as fencelock init does.
func (n *Node) Declare(nodes uint32, maxTTL int64) {
	n.marker = marker{exists: true, nodes: nodes, longest: maxTTL, known: true, life: n.incarnation(), seen: n.incarnation()}
}

func (n *Node) incarnation() incarnation {
	life := n.life
	if n.lacks(ReplLine) {
		life.repl = 0
	}
	return life
}

// Server returns an id of the server.
func (n *Node) Server() uint32 { return n.life.run<<16 | n.life.repl&0xffff }

// admits reports whether the node votes for clients with this set of nodes, and if not, for how
// many milliseconds it does not vote.
func (n *Node) admits(r Request, now int64) (s Status, left int64) {
	m, life := &n.marker, n.incarnation()
	if r.MaxTTL == 0 || n.lacks(WaitLine) {
		return Granted, 0
	}
	if m.exists && m.nodes != r.Nodes && !n.lacks(NodesLine) {
		return OtherNodes, 0
	}
	if !m.exists {
		*m = marker{exists: true, seen: life, since: now}
		if n.lacks(MarkLine) {
			m.since = n.booted
		}
	}
	m.nodes = r.Nodes
	votes := m.known && m.life == life
	if !votes || !n.lacks(LongestLine) {
		m.longest = max(m.longest, r.MaxTTL)
	}
	if votes {
		return Granted, 0
	}
	if m.seen != life || m.since > now {
		m.seen, m.since = life, now
	}
	if left := m.since + max(m.longest, r.MaxTTL) - now; left > 0 {
		return Quarantined, (left + 999) / 1000
	}
	m.known, m.life = true, life
	return Granted, 0
}

// Reincarnate begins a new incarnation of the server, as a restart does.
func (n *Node) Reincarnate() { n.life.repl++ }

// Life returns the incarnation in answers: the one that votes, or the one that was seen last.
func (n *Node) Life() uint32 {
	switch m := n.marker; {
	case m.known:
		return m.life.repl
	case m.exists:
		return m.seen.repl
	}
	return n.life.repl
}
