// Package quorum is what a client of several independent lock servers decides,
// as pure state machines: answers and the time go in, requests come out. It
// reads no clock, starts no goroutine and does no I/O, so a seeded simulator
// runs the code that ships.
//
// The algorithm is Redlock (Sanfilippo), with a fencing token added. A take has
// two rounds. In the first, the client asks every node for the lock and proposes
// a token; a node that grants stores a token f greater than any it stored
// before, and answers it. If a majority answered the proposal itself, it is the
// token. Otherwise the second round raises the stored token to the greatest f,
// on nodes that still have this client's lock; once a majority has done so it
// is the token.
//
// Why tokens grow: a returned token is stored by a majority while they hold the
// lock for its owner. Any later take is granted by a majority too; the two meet
// in a node, whose f was greater. Neither clocks nor leases matter for that, only
// that nodes remember. Exclusion itself depends on time: on clock rates, and on
// a client that stops before its leases end.
//
// A majority is of servers, not of addresses. An answer tells which server it is
// of, and two answers of one server are one vote.
package quorum

import (
	"time"

	"github.com/fencelock/fencelock/internal/hold"
)

// Terms are the fixed conditions of a take or a renewal.
type Terms struct {
	Nodes    int           // how many there are
	TTL      time.Duration // the lease each node gives
	Drift    time.Duration // how much of it clocks may eat
	Shared   bool          // others may hold the lock as well
	TwoRound bool          // do not take the short cut of one round
	Without  Line          // for the simulator: leave a safety line out
}

// Majority is how many nodes decide.
func (t Terms) Majority() int {
	if t.Without == MajorityLine {
		return t.Nodes / 2
	}
	return t.Nodes/2 + 1
}

// valid reports whether a lease asked for at sent is still good for something.
func (t Terms) valid(sent, now hold.Instant) bool {
	drift := t.Drift
	if t.Without == DriftLine {
		drift = 0
	}
	return t.Without == ElapsedLine || now.Since(sent) < t.TTL-drift
}

// Line is a line of code that keeps the lock safe. The simulator leaves out one
// at a time and must find out; programs that lock leave it 0.
type Line int

// The lines.
const (
	AllLines      Line = iota
	MajorityLine       // a majority, not one less
	DriftLine          // less the drift
	ElapsedLine        // less the time that asking took
	SentLine           // counted from the request, not from the answer
	CleanUpLine        // what a failed take got is given back
	WriteBackLine      // the second round
	GrantedLine        // the second round goes to nodes that granted only
	FloorLine          // an exclusive acquisition's floor is its token
	LateLine           // a renewal heard of after the lease's end is none
	DistinctLine       // a majority is of distinct servers
	LeaseLine          // a straggler is repaired while the lease lasts only
	StragglerLine      // a straggler of the first round gets the token as well
	EveryLine          // a take that is lost frees nodes that have not answered, too
)

// indices are the numbers of nodes, for orders that need no slice of their own.
var indices = func() (all [64]int) {
	for i := range all {
		all[i] = i
	}
	return all
}()

// only returns the slice of one node.
func only(node int) []int {
	if node >= len(indices) {
		return []int{node}
	}
	return indices[node : node+1 : node+1]
}

// every returns the slice of all nodes.
func every(nodes int) []int {
	if nodes <= len(indices) {
		return indices[:nodes:nodes]
	}
	all := make([]int, nodes)
	for i := range all {
		all[i] = i
	}
	return all
}
