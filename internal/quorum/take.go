package quorum

import "github.com/fencelock/fencelock/internal/hold"

// Vote is a node's answer to a request for the lock.
type Vote struct {
	Granted bool
	Token   int64  // the token that the node stored, if it granted
	Floor   int64  // the smallest token among its holders, this one included
	Server  uint64 // the id of the server; 0 means unknown
}

// Orders are the requests that follow from an answer.
type Orders struct {
	Raise []int // raise the stored token to Take.Token on these nodes
	Free  []int // release the lock on these nodes, whatever they answered
}

// State is the state of a take.
type State int

// The states.
const (
	Asking  State = iota // the first round is under way
	Raising              // the second round is under way
	Won                  // the lock is held
	Lost                 // the lock is not held, and is being released on nodes that granted
)

// Take is one attempt to get the lock. It is not safe for concurrent use.
type Take struct {
	terms    Terms
	proposed int64
	sent     hold.Instant
	state    State
	token    int64
	floor    int64
	votes    []vote
}

// vote is the state of one node.
type vote struct {
	asked bool // it answered the first round, or timed out
	Vote
	raising bool   // a request to raise was sent to it
	raised  bool   // it answered the second round, or timed out
	stored  bool   // it stored the token
	keeper  uint64 // the id of the server that stored it
}

// NewTake begins an attempt. The caller reads the time before the call. After it, the caller
// requests the lock from every node and proposes a token.
//
// Every attempt needs its own owner. Releases of a failed attempt may arrive after the next attempt
// has begun; with the same owner they would release the lock of that attempt.
func NewTake(terms Terms, proposed int64, now hold.Instant) *Take {
	return &Take{terms: terms, proposed: proposed, sent: now, votes: make([]vote, terms.Nodes)}
}

// State returns the state of the take.
func (t *Take) State() State { return t.state }

// Token returns the token to raise to while Raising, and the token of the acquisition once Won.
func (t *Take) Token() int64 { return t.token }

// Floor returns a lower bound of the tokens of the current holders, once Won. Without sharing, that
// is the token itself. With sharing, another holder may have been granted a token by a node between
// the two rounds of this take, so the tokens of the first round count.
func (t *Take) Floor() int64 {
	if !t.terms.Shared {
		return t.token
	}
	return min(t.floor, t.token)
}

// Sent returns the start of the lease.
func (t *Take) Sent() hold.Instant { return t.sent }

// Asked processes a node's vote. For a node that does not answer in time, the caller passes a vote
// that grants nothing; a later grant still counts.
func (t *Take) Asked(node int, v Vote, now hold.Instant) Orders {
	b := &t.votes[node]
	if b.asked && (b.Granted || !v.Granted) {
		return Orders{}
	}
	b.asked, b.Vote = true, v
	switch t.state {
	case Asking:
		return t.count(now)
	case Raising, Won:
		switch {
		case !v.Granted:
			return t.settle(now)
		case t.state == Raising || v.Token != t.token || t.terms.TwoRound: // a late answer: this node has the lock too
			return t.raise([]int{node})
		}
	case Lost:
		if v.Granted {
			return Orders{Free: []int{node}}
		}
	}
	return Orders{}
}

// count ends the first round as soon as the answers decide it.
func (t *Take) count(now hold.Instant) Orders {
	granted, same, open := 0, 0, 0
	var seen servers
	t.token, t.floor = 0, 0
	for _, b := range t.votes {
		switch {
		case !b.asked:
			open++
		case b.Granted && !seen.again(b.Server):
			granted++
			t.token = max(t.token, b.Token)
			if t.floor == 0 || b.Floor < t.floor {
				t.floor = b.Floor
			}
			if b.Token == t.proposed {
				same++
			}
		}
	}
	need := t.terms.Need
	switch {
	case !t.terms.valid(t.sent, now), granted+open < need:
		return t.lose()
	case granted < need:
		return Orders{}
	case same >= need && !t.terms.TwoRound:
		t.token = t.proposed
		t.state = Won
		return Orders{}
	}
	t.state = Raising
	return t.raise(t.granted())
}

func (t *Take) raise(nodes []int) Orders {
	for _, n := range nodes {
		t.votes[n].raising = true
	}
	return Orders{Raise: nodes}
}

// Raised processes a node's answer to the second round. ok reports whether the node stored the
// token, and server is the id of the server, or 0 if unknown. For a node that does not answer in
// time, the caller passes false; a later true still counts.
func (t *Take) Raised(node int, ok bool, server uint64, now hold.Instant) Orders {
	b := &t.votes[node]
	if !b.raising || b.raised && (b.stored || !ok) {
		return Orders{}
	}
	b.raised, b.stored, b.keeper = true, ok, server
	return t.settle(now)
}

// settle ends the second round as soon as the answers decide it.
func (t *Take) settle(now hold.Instant) Orders {
	if t.state != Raising {
		return Orders{}
	}
	stored, open := 0, 0
	var seen servers
	for _, b := range t.votes {
		switch {
		case b.stored:
			if !seen.again(b.keeper) {
				stored++
			}
		case b.raising && !b.raised, !b.asked:
			open++ // a late grant is still possible, and the raise after it
		}
	}
	switch need := t.terms.Need; {
	case !t.terms.valid(t.sent, now), stored+open < need:
		return t.lose()
	case stored >= need:
		t.state = Won
	}
	return Orders{}
}

// Expire ends an attempt that has taken too long. The caller must call it before the lease would
// expire.
func (t *Take) Expire() Orders {
	if t.state == Won || t.state == Lost {
		return Orders{}
	}
	return t.lose()
}

// lose releases the lock on every node, because one that has not answered may have granted.
func (t *Take) lose() Orders {
	t.state = Lost
	all := make([]int, len(t.votes))
	for i := range all {
		all[i] = i
	}
	return Orders{Free: all}
}

func (t *Take) granted() (nodes []int) {
	for i, b := range t.votes {
		if b.Granted {
			nodes = append(nodes, i)
		}
	}
	return nodes
}
