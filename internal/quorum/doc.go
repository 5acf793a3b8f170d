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
// Tokens increase for this reason: a majority stored the returned token while it held the lock for
// the owner. A later take is granted by a majority, too. The two majorities share a node, and the f
// of that node is greater than the stored token. This needs neither clocks nor leases, only nodes
// that keep their data. Mutual exclusion, in contrast, depends on time: on clock rates, and on
// clients that stop before their leases end.
//
// A majority consists of servers, not of addresses. An answer contains the id of its server, and
// two answers of one server count as one vote.
package quorum

import (
	"slices"
	"time"

	"github.com/fencelock/fencelock/internal/hold"
)

// Terms are the fixed conditions of a take or a renewal.
type Terms struct {
	Nodes    int           // the number of nodes
	Need     int           // the number of nodes that decide: a majority
	TTL      time.Duration // the lease each node gives
	Drift    time.Duration // the part of the TTL that is given up for clocks that run at different rates
	Shared   bool          // others may hold the lock at the same time
	TwoRound bool          // always do the second round
}

// valid reports whether a lease that was requested at sent has not expired.
func (t Terms) valid(sent, now hold.Instant) bool { return now.Since(sent) < t.TTL-t.Drift }

// servers are the servers whose votes have been counted. Two addresses can lead to one server.
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
