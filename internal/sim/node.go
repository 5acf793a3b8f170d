package sim

import "github.com/fencelock/fencelock/internal/quorum"

// Owner names one attempt to acquire; nobody uses one twice.
type Owner int32

// Status is how a node answers a request for the lock.
type Status uint8

// The statuses.
const (
	Granted     Status = iota
	Held               // somebody else has it
	Quarantined        // the node may have forgotten what it granted
	OtherNodes         // the node works with another set of nodes
)

// Request asks a node for the lock. Times are in microseconds.
type Request struct {
	Owner    Owner
	Shared   bool
	Proposed int64  // the token that the client would like
	TTL      int64  // the lease
	Nodes    uint32 // a hash of the client's set of nodes
}

// Answer is what a node says to a Request.
type Answer struct {
	Status Status
	Token  int64 // the token stored, if granted
	Floor  int64 // the smallest token among the holders, if granted
}

// Seat is one holder's place on a node.
type Seat struct {
	Owner Owner
	Token int64
	Until int64 // when it ends, by the node's clock
}

// Line is a line of the nodes or of the clients that keeps the lock safe; those
// of package quorum are apart.
type Line uint32

// The lines of the nodes.
const (
	OwnerLine    Line = 1 << iota // raise asks who has the lock
	MissLine                      // raise is refused where no lock stands
	WaitLine                      // quarantine
	MarkLine                      // a missing marker is a reason for quarantine, however long the server has been up
	ReplLine                      // a failover is a change of incarnation
	NodesLine                     // a node works with one set of nodes
	CapLine                       // proposals are capped
	ReviveLine                    // renew does not revive
	FenceLine                     // repair asks for the stored token
	CompareLine                   // release asks who has the lock
	FreshLine                     // the client uses an owner once
	SuspendLine                   // the client reads a clock that counts suspended time
	SeatLine                      // a renewal corrects the token of its seat
	LowLine                       // raise refuses a token that may be another sharer's, each time
	AcquaintLine                  // the client tells a renewal which lease it extends
)

// incarnation tells apart the lives of a server's memory.
type incarnation struct{ run, repl uint32 }

// Node is what package redlock's scripts do on one server, for one name. Clocks
// are the node's own, in microseconds. The zero Node is empty and quarantined;
// Declare makes it vote at once. It is not safe for concurrent use.
type Node struct {
	Without Line  // for the simulator: leave safety lines out
	MaxTTL  int64 // how long a node that may have forgotten does not vote; 0 means at once
	Ahead   int64 // how far ahead of the clock a proposal may be

	Fence  int64  // the last token stored
	Shared bool   // whether the seats are shared
	Seats  []Seat // who holds the lock

	life   incarnation // of the server
	booted int64       // when the server started
	marker marker
	lapsed int // seats that ran out
}

// marker is the key that tells which incarnation granted the locks.
type marker struct {
	exists bool
	nodes  uint32
	known  bool // life has been through the quarantine
	life   incarnation
	seen   incarnation // the one in quarantine
	since  int64       // from when
}

func (n *Node) lacks(l Line) bool { return n.Without&l != 0 }

// Declare makes the node vote at once, as fencelock init does.
func (n *Node) Declare(nodes uint32) {
	n.marker = marker{exists: true, nodes: nodes, known: true, life: n.incarnation(), seen: n.incarnation()}
}

func (n *Node) incarnation() incarnation {
	life := n.life
	if n.lacks(ReplLine) {
		life.repl = 0
	}
	return life
}

// Ask is the first round of a take.
func (n *Node) Ask(r Request, now int64) Answer {
	if s := n.admits(r.Nodes, now); s != Granted {
		return Answer{Status: s}
	}
	n.lapse(now)
	if s := n.find(r.Owner); s != nil { // asked twice; the lease may be a longer one by now
		s.Until = max(s.Until, now+r.TTL)
		return Answer{Status: Granted, Token: s.Token, Floor: n.floor()}
	}
	if len(n.Seats) > 0 && !(n.Shared && r.Shared) {
		return Answer{Status: Held}
	}
	proposed := r.Proposed
	if !n.lacks(CapLine) {
		proposed = min(proposed, now+n.Ahead)
	}
	n.Fence = max(n.Fence+1, now, proposed)
	n.seat(r.Owner, n.Fence, r.Shared, now+r.TTL)
	return Answer{Status: Granted, Token: n.Fence, Floor: n.floor()}
}

// admits says whether the node votes, for clients with this set of nodes.
func (n *Node) admits(nodes uint32, now int64) Status {
	m, life := &n.marker, n.incarnation()
	if n.MaxTTL == 0 || n.lacks(WaitLine) {
		return Granted
	}
	if m.exists && m.nodes != nodes && !n.lacks(NodesLine) {
		return OtherNodes
	}
	if !m.exists {
		*m = marker{exists: true, seen: life, since: now}
		if n.lacks(MarkLine) {
			m.since = n.booted
		}
	}
	m.nodes = nodes
	if m.known && m.life == life {
		return Granted
	}
	if m.seen != life {
		m.seen, m.since = life, now
	}
	if now-m.since < n.MaxTTL {
		return Quarantined
	}
	m.known, m.life = true, life
	return Granted
}

// Raise is the second round of a take: it stores the token of an acquisition.
func (n *Node) Raise(owner Owner, token, now int64) bool {
	n.lapse(now)
	s := n.find(owner)
	if s == nil {
		if n.lacks(OwnerLine) && (len(n.Seats) > 0 || n.lacks(MissLine)) {
			n.Fence = max(n.Fence, token)
			return true
		}
		return false
	}
	if s.Token != token {
		if n.Shared && token <= n.Fence { // it may be another's who shares the lock
			if n.lacks(LowLine) {
				s.Token = token
			}
			return false
		}
		s.Token, n.Fence = token, max(n.Fence, token)
	}
	return true
}

// Renew extends a lock that stands. Its seat gets the token of the acquisition:
// where the node granted a greater one, a guard would take that for the floor.
func (n *Node) Renew(owner Owner, token, ttl, now int64) quorum.Standing {
	n.lapse(now)
	if s := n.find(owner); s != nil {
		s.Until = now + ttl
		if !n.lacks(SeatLine) {
			s.Token = token
		}
		return quorum.Renewed
	}
	if len(n.Seats) > 0 {
		return quorum.Taken
	}
	if n.lacks(ReviveLine) {
		n.seat(owner, token, false, now+ttl)
		return quorum.Renewed
	}
	return quorum.Free
}

// Repair puts a lock back that the node lost, unless it has stored a greater
// token since.
func (n *Node) Repair(owner Owner, token int64, shared bool, ttl, now int64) bool {
	n.lapse(now)
	if n.find(owner) != nil {
		return true
	}
	if n.Fence > token && !n.lacks(FenceLine) || len(n.Seats) > 0 && !(n.Shared && shared) {
		return false
	}
	n.seat(owner, token, shared, now+ttl)
	n.Fence = max(n.Fence, token)
	return true
}

// Release ends an owner's lock.
func (n *Node) Release(owner Owner, now int64) bool {
	n.lapse(now)
	for i := range n.Seats {
		if n.Seats[i].Owner == owner || n.lacks(CompareLine) {
			n.Seats = append(n.Seats[:i], n.Seats[i+1:]...)
			return true
		}
	}
	return false
}

func (n *Node) seat(owner Owner, token int64, shared bool, until int64) {
	n.Shared = shared
	if s := n.find(owner); s != nil {
		s.Token, s.Until = token, until
		return
	}
	n.Seats = append(n.Seats, Seat{owner, token, until})
}

func (n *Node) find(owner Owner) *Seat {
	for i := range n.Seats {
		if n.Seats[i].Owner == owner {
			return &n.Seats[i]
		}
	}
	return nil
}

func (n *Node) floor() int64 {
	floor := n.Seats[0].Token
	for _, s := range n.Seats[1:] {
		floor = min(floor, s.Token)
	}
	return floor
}

// lapse frees what has run out.
func (n *Node) lapse(now int64) {
	live := n.Seats[:0]
	for _, s := range n.Seats {
		if s.Until > now {
			live = append(live, s)
		} else {
			n.lapsed++
		}
	}
	n.Seats = live
}
