package quorum

import "github.com/fencelock/fencelock/internal/hold"

// Vote is a node's answer to a request for the lock.
type Vote struct {
	Granted bool
	Token   int64  // the token the node stored, if it granted
	Floor   int64  // the smallest token among its holders, this one included
	Server  uint64 // which server it was; 0 means unknown
}

// Orders are the requests that follow from an answer.
type Orders struct {
	Raise []int // raise the stored token to Take.Token on these nodes
	Free  []int // give the lock back on these nodes, whatever they answered
}

// State is how far a take is.
type State int

// The states.
const (
	Asking  State = iota // the first round is under way
	Raising              // the second round is under way
	Won                  // the lock is held
	Lost                 // it is not, and nodes that granted are being freed
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

// vote is what one node has said.
type vote struct {
	asked bool // it answered the first round, or was given up
	Vote
	told   bool   // it was asked to raise
	raised bool   // it answered the second round, or was given up
	stored bool   // it has the token
	keeper uint64 // which server has it
}

// NewTake begins an attempt. The caller has read the time and then asks every
// node, proposing a token.
//
// Every attempt needs an owner of its own: its clean-up may still be on the way
// when the next attempt begins, and would free what that one was granted.
func NewTake(terms Terms, proposed int64, now hold.Instant) *Take {
	return &Take{terms: terms, proposed: proposed, sent: now, votes: make([]vote, terms.Nodes)}
}

// State returns how far the take is.
func (t *Take) State() State { return t.state }

// Token returns the token: the one to raise to while Raising, that of the
// acquisition once Won.
func (t *Take) Token() int64 { return t.token }

// Floor returns a lower bound of the tokens among the current holders, once Won:
// the token itself unless the lock is shared. One who shares it may have asked a
// node after this take did, and before that raised its token, so the tokens of
// the first round count.
func (t *Take) Floor() int64 {
	if !t.terms.Shared {
		return t.token
	}
	return min(t.floor, t.token)
}

// Sent returns the time from which the lease counts.
func (t *Take) Sent() hold.Instant { return t.sent }

// Asked takes a node's vote. A node that did not answer in time is given up by a
// vote that grants nothing; should it grant after all, that counts.
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
		case t.state == Raising || v.Token != t.token || t.terms.TwoRound: // a straggler: it holds the lock as well
			return t.raise([]int{node})
		}
	case Lost:
		if v.Granted {
			return Orders{Free: []int{node}}
		}
	}
	return Orders{}
}

// count decides the first round as soon as it can be decided.
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
		t.votes[n].told = true
	}
	return Orders{Raise: nodes}
}

// Raised takes a node's answer to the second round: whether it has the token, and
// which server it is, 0 if unknown. A node that did not answer in time is given up
// by false; a later true counts.
func (t *Take) Raised(node int, ok bool, server uint64, now hold.Instant) Orders {
	b := &t.votes[node]
	if !b.told || b.raised && (b.stored || !ok) {
		return Orders{}
	}
	b.raised, b.stored, b.keeper = true, ok, server
	return t.settle(now)
}

// settle decides the second round as soon as it can be decided.
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
		case b.told && !b.raised, !b.asked:
			open++ // a straggler may still grant, and be told
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

// Expire ends an attempt that has taken too long. The caller does so no later
// than when the lease would be over.
func (t *Take) Expire() Orders {
	if t.state == Won || t.state == Lost {
		return Orders{}
	}
	return t.lose()
}

// lose frees every node: one that has not answered may have granted.
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
