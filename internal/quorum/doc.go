// Package quorum contains the decisions of a client of several independent lock servers, as pure
// state machines: answers and the time go in, requests come out. It reads no clock, starts no
// goroutine and does no I/O, so a seeded simulator runs the code that ships.
//
// The algorithm is Redlock (Sanfilippo), with a fencing token added. A take has two rounds. In the
// first, the client asks every node for the lock and proposes a token. A node that grants stores a
// token f greater than any it stored before, and returns it. If a majority returned the proposal
// itself, it is the token. Otherwise the second round raises the stored token to the greatest f, on
// nodes that still have this client's lock. Once a majority has done so, that is the token.
//
// Tokens increase because a returned token is stored by a majority while they hold the lock for its
// owner. Any later take is granted by a majority, too. The two majorities share a node, and the f
// of that node is greater. That needs neither clocks nor leases, only nodes that keep their data.
// Exclusion itself depends on time: on clock rates, and on clients that stop before their leases
// end.
//
// A majority is of servers, not of addresses. An answer names its server, and two answers of one
// server are one vote.
package quorum

import (
	"slices"
	"time"

	"github.com/fencelock/fencelock/internal/hold"
)

// Terms are the fixed conditions of a take or a renewal.
type Terms struct {
	Nodes    int           // how many there are
	Need     int           // how many decide: a majority of them
	TTL      time.Duration // the lease each node gives
	Drift    time.Duration // how much of it clocks may eat
	Shared   bool          // others may hold the lock as well
	TwoRound bool          // do not take the short cut of one round
}

// valid reports whether a lease asked for at sent is still good for something.
func (t Terms) valid(sent, now hold.Instant) bool { return now.Since(sent) < t.TTL-t.Drift }

// servers are those that have a vote, of which an address may come to lead to another one's.
type servers []uint64

// again reports whether a server has been seen before; 0 means unknown.
func (s *servers) again(server uint64) bool {
	if server == 0 {
		return false
	}
	seen := slices.Contains(*s, server)
	*s = append(*s, server)
	return seen
}
