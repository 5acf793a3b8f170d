package sim

import (
	"slices"

	"github.com/fencelock/fencelock/internal/quorum"
)

// Owner identifies one attempt to acquire. It is never reused.
type Owner int32

// Status is a node's answer to a request for the lock.
type Status uint8

// The statuses.
const (
	Granted     Status = iota
	Held               // another owner holds it, or a minimum hold has not ended
	Quarantined        // the node may have lost its locks
	OtherNodes         // the node works with another set of nodes
	Late               // the request arrived after its deadline
	Told               // the name is free, but reserved for waiters that were notified
	Passed             // the owner to adopt from does not hold the name
)

// Request requests the lock from a node. Times are in microseconds.
type Request struct {
	Owner    Owner
	Shared   bool
	Forced   bool   // break the name
	Only     Owner  // with Forced: the only owner to break; 0 means all
	Adopts   bool   // take the name from Only
	Proposed int64  // the token that the client proposes
	TTL      int64  // the lease
	By       int64  // the latest time at which it may be served, by the node's clock
	Nodes    uint32 // a hash of the client's set of nodes
	MaxTTL   int64  // how long a node that may have lost its locks does not vote; 0 means no quarantine
	Wait     Wait
}

// Answer is a node's answer to a Request.
type Answer struct {
	Status Status
	Token  int64  // the token stored, if granted
	Floor  int64  // the lowest token among the holders, if granted
	Left   int64  // how long the node does not vote, or the name is held, in milliseconds
	Server uint32 // the server's id
	Broken []Owner
}

// Seat is one holder on a node.
type Seat struct {
	Owner Owner
	Token int64
	Until int64 // when its lease expires, by the node's clock
}

// Line is a line of code of the nodes or of the clients that keeps the lock safe. The simulator
// leaves out one at a time and must detect that.
type Line uint64

// The lines. Those from MajorityLine on belong to package quorum; see quorum.go.
const (
	OwnerLine    Line = 1 << iota // raise checks the owner
	MissLine                      // raise is refused if the node has no lock
	WaitLine                      // a node that may have lost its locks does not vote for MaxTTL
	MarkLine                      // a missing marker is a reason for quarantine, however long the server has been up
	ReplLine                      // a failover is a change of incarnation
	NodesLine                     // a node accepts clients with one set of nodes only
	LongestLine                   // a node stores a greater MaxTTL while it votes, too
	CapLine                       // a proposed token far ahead of the clock is reduced
	ReviveLine                    // renew does not restore a lock that has expired
	FenceLine                     // repair compares the stored token
	CompareLine                   // release checks the owner
	FreshLine                     // the client uses each owner for one attempt only
	SuspendLine                   // the client's clock includes suspended time
	SeatLine                      // a renewal corrects the token of its seat
	LowLine                       // with sharing, raise refuses a token not above the last one, which may be another holder's
	AcquaintLine                  // the client calls Renewal.Extends
	ByLine                        // a node refuses a request after its deadline
	BarLine                       // a release makes the node refuse a request of the owner that arrives later
	HoldLine                      // a minimum hold is stored
	UndoLine                      // a failed take removes its minimum hold
	SinceLine                     // a node computes the start of a wait by its own clock
	TillLine                      // a free name is reserved for the notified waiter for a short time only
	EndedLine                     // a late answer to a renewal does not affect a hold that has ended
	FreedLine                     // after a release the node refuses the owner for a while
	PassLine                      // a node lets a client adopt only what it has

	MajorityLine  // a majority, not one node less
	DriftLine     // the drift is subtracted from the lease
	ElapsedLine   // the time that the requests took is subtracted from the lease
	SentLine      // the lease starts with the request, not with the answer
	CleanUpLine   // a failed take releases the lock on nodes that granted it
	WriteBackLine // the second round
	GrantedLine   // the second round includes only nodes that granted
	FloorLine     // an exclusive acquisition's floor is its token
	DistinctLine  // a majority is of distinct servers
	LeaseLine     // a node that answers late is repaired only before the lease expires
	StragglerLine // a node that grants late in the first round gets the token, too
	EveryLine     // a failed take also sends releases to nodes that have not answered
)

// incarnation changes whenever a server may have lost data: by a restart or a failover.
type incarnation struct{ run, repl uint32 }

// Node does what package redlock's scripts do on one server, for one name. Clocks are the node's,
// in microseconds. The zero Node is empty and quarantined; Declare makes it vote immediately. It is
// not safe for concurrent use.
type Node struct {
	Without Line  // safety lines to leave out
	Ahead   int64 // how far ahead of the clock a proposal may be

	Fence     int64  // the last token
	NotBefore int64  // end of the minimum hold
	Shared    bool   // whether the seats are shared
	Seats     []Seat // the holders
	Bars      []Bar
	waiters

	life   incarnation // of the server
	booted int64       // when the server started
	marker marker
	lapsed []Owner // owners whose leases expired since the last check of the judge
}

// Bar makes a node refuse requests of an owner.
type Bar struct {
	Owner Owner
	Until int64
	Freed bool // its lock was released
}

// freed is how long a node refuses the owner of a released lock, in microseconds.
const freed = int64(5_000_000)

func (n *Node) lacks(l Line) bool { return n.Without&l != 0 }

// Ask is the first round of an attempt.
func (n *Node) Ask(r Request, now int64) Answer {
	n.lapse(now)
	if n.late(r.Owner, r.By, now) {
		return Answer{Status: Late}
	}
	if s, left := n.admits(r, now); s != Granted {
		return Answer{Status: s, Left: left}
	}
	a := Answer{Server: n.Server()}
	if s := n.find(r.Owner); s != nil { // a second request of the same attempt, perhaps with a longer lease
		s.Until = max(s.Until, now+r.TTL)
		a.Token, a.Floor = s.Token, n.lowest()
		return a
	}
	switch {
	case r.Adopts && n.lacks(PassLine) && n.find(r.Only) == nil:
	case r.Adopts && (n.find(r.Only) == nil || n.Shared != r.Shared):
		a.Status = Passed
		return a
	case r.Adopts:
		n.Seats = slices.DeleteFunc(n.Seats, func(s Seat) bool { return s.Owner == r.Only })
		n.refuse(r.Only, now+freed, now)
		r.Forced = true
	case r.Forced && r.Only != 0:
		if r.Forced = n.find(r.Only) != nil; r.Forced {
			a.Broken = []Owner{r.Only}
			n.Seats = slices.DeleteFunc(n.Seats, func(s Seat) bool { return s.Owner == r.Only })
		}
	}
	switch {
	case r.Forced && r.Only != 0:
	case r.Forced:
		for _, s := range n.Seats {
			a.Broken = append(a.Broken, s.Owner)
		}
		n.Seats = n.Seats[:0]
	case n.NotBefore > now:
		n.join(r, now)
		a.Status = Held
		return a
	case len(n.Seats) == 0:
		if left := n.keeps(r, now); left > 0 {
			n.join(r, now)
			a.Status, a.Left = Told, left
			return a
		}
	}
	if len(n.Seats) > 0 && !(n.Shared && r.Shared) {
		n.join(r, now)
		a.Status = Held
		return a
	}
	a.Token = n.grant(r, now)
	a.Floor = n.lowest()
	return a
}

// late reports whether a request of an owner arrived too late.
func (n *Node) late(owner Owner, by, now int64) bool {
	if !n.lacks(ByLine) && now > by {
		return true
	}
	return n.bar(owner, now) != nil
}

// bar returns the bar of an owner, or nil.
func (n *Node) bar(owner Owner, now int64) *Bar {
	n.Bars = slices.DeleteFunc(n.Bars, func(b Bar) bool { return b.Until <= now })
	i := slices.IndexFunc(n.Bars, func(b Bar) bool { return b.Owner == owner })
	if i < 0 {
		return nil
	}
	return &n.Bars[i]
}

// refuse makes the node refuse requests of an owner until a time.
func (n *Node) refuse(owner Owner, until, now int64) {
	if b := n.bar(owner, now); b != nil {
		b.Until = max(b.Until, until)
		return
	}
	n.Bars = append(n.Bars, Bar{Owner: owner, Until: until})
}

func (n *Node) grant(r Request, now int64) (token int64) {
	proposed := r.Proposed
	if !n.lacks(CapLine) {
		proposed = min(proposed, now+n.Ahead)
	}
	n.remember(max(n.Fence+1, now, proposed))
	n.addHolder(r.Owner, n.Fence, r.Shared, now+r.TTL)
	if r.Wait.Joins {
		n.Leave(r.Wait.Caller)
	}
	return n.Fence
}

// remember stores a token. It also ends the reservation for a notified waiter.
func (n *Node) remember(token int64) {
	n.Fence, n.first = max(n.Fence, token), first{}
}

// Raise is the second round of an attempt: it stores the token and the minimum hold of an
// acquisition.
func (n *Node) Raise(owner Owner, token, minHold, now int64) bool {
	n.lapse(now)
	s := n.find(owner)
	if s == nil {
		if n.lacks(OwnerLine) && (len(n.Seats) > 0 || n.lacks(MissLine)) {
			n.Fence = max(n.Fence, token)
			return true
		}
		return false
	}
	if s.Token != token && n.Shared && token <= n.Fence { // the token may be that of another shared holder
		if n.lacks(LowLine) {
			s.Token = token
		}
		return false
	}
	if minHold > 0 && !n.lacks(HoldLine) {
		n.NotBefore = max(n.NotBefore, now+minHold)
	}
	if s.Token != token || minHold > 0 {
		n.remember(token)
	}
	s.Token = token
	return true
}

// Renew extends a lock that exists. It replaces the stored token by that of the acquisition: if the
// node had granted a greater one, it would become the floor of later holders.
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
		n.addHolder(owner, token, false, now+ttl)
		return quorum.Renewed
	}
	return quorum.Free
}

// Repair restores a lock that the node lost, unless it has stored a greater token since or the
// request is late.
func (n *Node) Repair(owner Owner, token int64, shared bool, ttl, by, now int64) bool {
	n.lapse(now)
	if n.find(owner) != nil {
		return true
	}
	if n.late(owner, by, now) {
		return false
	}
	if n.Fence > token && !n.lacks(FenceLine) || len(n.Seats) > 0 && !(n.Shared && shared) {
		return false
	}
	n.addHolder(owner, token, shared, now+ttl)
	n.remember(token)
	return true
}

// Ending releases an acquisition.
type Ending struct {
	Owner  Owner
	By     int64 // the time until which a request of this owner may arrive; 0 if all were answered
	Failed bool  // the attempt failed: end its minimum hold too
	Keep   bool  // reserve the name for waiters
	Aloud  bool  // and notify the waiter that has waited longest
}

// End is the result of a release.
type End uint8

// The results.
const (
	Gone  End = iota // the owner has no lock
	Ended            // the lock was released
	Freed            // an earlier release has ended it
)

// Release ends an owner's lock, and returns who is notified that the name is free.
func (n *Node) Release(r Ending, now int64) (end End, notified Call) {
	n.lapse(now)
	for i := range n.Seats {
		if n.Seats[i].Owner != r.Owner && !n.lacks(CompareLine) {
			continue
		}
		if r.Failed && !n.lacks(UndoLine) {
			n.NotBefore = 0
		}
		n.Seats = append(n.Seats[:i], n.Seats[i+1:]...)
		end = Ended
		break
	}
	b := n.bar(r.Owner, now)
	switch {
	case end == Gone && b != nil && b.Freed:
		end = Freed
	case end == Ended && !n.lacks(FreedLine):
		n.Bars = append(n.Bars, Bar{r.Owner, now + freed, true})
		b = &n.Bars[len(n.Bars)-1]
	}
	if r.By > now && !n.lacks(BarLine) {
		if b == nil {
			n.Bars = append(n.Bars, Bar{Owner: r.Owner, Until: r.By})
		} else {
			b.Until = max(b.Until, r.By)
		}
	}
	if r.Keep && end != Freed {
		notified = n.invite(r.Aloud, now)
	}
	return end, notified
}

func (n *Node) addHolder(owner Owner, token int64, shared bool, until int64) {
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

// lowest returns the smallest token among the holders.
func (n *Node) lowest() int64 {
	floor := n.Seats[0].Token
	for _, s := range n.Seats[1:] {
		floor = min(floor, s.Token)
	}
	return floor
}

// lapse removes seats whose leases have expired.
func (n *Node) lapse(now int64) {
	live := n.Seats[:0]
	for _, s := range n.Seats {
		if s.Until > now {
			live = append(live, s)
		} else {
			n.lapsed = append(n.lapsed, s.Owner)
		}
	}
	n.Seats = live
	n.forget(now)
}
