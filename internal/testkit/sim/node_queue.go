package sim

import (
	"fmt"
	"slices"
	"strconv"
)

// Caller identifies a waiting request; 0 means none.
type Caller int32

// Call is the target of a notification that the name is free: one caller, or one of the constants
// below.
type Call int32

// The calls that name no caller.
const (
	Nobody   Call = 0
	Sharers  Call = -1 // all waiters for a shared lock
	Everyone Call = -2 // any waiter
)

// Wait describes how a request waits. With the zero Wait it does not.
type Wait struct {
	Joins  bool
	Caller Caller
	Waited int64 // how long it has waited, in microseconds
	Since  int64 // when the wait began, by the client's clock
	First  bool  // it was notified that it is next
	Next   bool  // it has the vote of the node that notified it
}

// Times in microseconds.
const (
	reserved = int64(10_000)    // how long a free name is reserved for a notified waiter
	patience = int64(5_000_000) // how long a request stays in the queue if it is not repeated
)

// waiters is the queue of a node.
type waiters struct {
	first first
	line  []waiter // ordered by since and caller
	until int64    // when the server deletes the queue, in milliseconds
}

// first is the reservation of a free name for a waiter.
type first struct {
	who  Call
	till int64 // in milliseconds
}

type waiter struct {
	caller Caller
	shared bool
	since  int64
	till   int64 // in milliseconds
}

// keeps returns for how many milliseconds a free name is still reserved for requests other than r.
func (n *Node) keeps(r Request, now int64) int64 {
	f, ms := n.first, now/1000
	if f.who == Nobody || f.till <= ms && !n.lacks(TillLine) || f.till > ms+reserved/1000 || r.Wait.Next {
		return 0
	}
	if r.Wait.First && (f.who == Everyone || f.who == Call(r.Wait.Caller) || f.who == Sharers && r.Shared) {
		return 0
	}
	return max(f.till-ms, 1)
}

// join puts a request into the queue, or extends its stay.
func (n *Node) join(r Request, now int64) {
	if !r.Wait.Joins {
		return
	}
	n.Leave(r.Wait.Caller)
	w := waiter{r.Wait.Caller, r.Shared, now - r.Wait.Waited, now/1000 + patience/1000}
	if n.lacks(SinceLine) {
		w.since = min(r.Wait.Since, now)
	}
	i := 0
	for i < len(n.line) && (n.line[i].since < w.since || n.line[i].since == w.since && n.line[i].caller < w.caller) {
		i++
	}
	n.line, n.until = slices.Insert(n.line, i, w), max(n.until, w.till)
}

// Leave removes a request from the queue.
func (n *Node) Leave(c Caller) {
	for i := range n.line {
		if n.line[i].caller == c {
			n.drop(i)
			return
		}
	}
}

func (n *Node) drop(i int) {
	if n.line = append(n.line[:i], n.line[i+1:]...); len(n.line) == 0 {
		n.until = 0
	}
}

// forget deletes a queue that no request has extended in time.
func (n *Node) forget(now int64) {
	if n.until <= now/1000 {
		n.line, n.until = n.line[:0], 0
	}
}

// GiveUp is Leave for a request that no longer waits. If the name is reserved for it, the next
// waiter is notified.
func (n *Node) GiveUp(c Caller, now int64) Call {
	n.lapse(now)
	n.Leave(c)
	if n.first.who == Call(c) {
		return n.invite(true, now)
	}
	return Nobody
}

// invite reserves a free name for the waiters. With aloud, it returns the waiter to notify, which
// is the one that has waited longest, and removes it from the queue. So a dead waiter is notified
// only once.
func (n *Node) invite(aloud bool, now int64) Call {
	if len(n.line) == 0 || len(n.Seats) > 0 {
		return Nobody
	}
	who, ms := Everyone, now/1000
	if aloud {
		for len(n.line) > 0 && n.line[0].till <= ms {
			n.drop(0)
		}
		if len(n.line) == 0 {
			return Nobody
		}
		if who = Sharers; !n.line[0].shared {
			who = Call(n.line[0].caller)
			n.drop(0)
		}
	}
	n.first = first{who, ms + reserved/1000}
	if aloud {
		return who
	}
	return Nobody
}

// String returns the call as the scripts write it.
func (c Call) String() string {
	switch c {
	case Nobody:
		return "-"
	case Sharers:
		return "s"
	case Everyone:
		return "*"
	}
	return strconv.Itoa(int(c))
}

// First returns who is next, as the scripts write it.
func (n *Node) First() string {
	if n.first.who == Nobody {
		return "-"
	}
	return n.first.who.String() + "/" + strconv.FormatInt(n.first.till, 10)
}

// Line returns the waiters, one text for each.
func (n *Node) Line(now int64) (all []string) {
	n.forget(now)
	for _, w := range n.line {
		mode := "x"
		if w.shared {
			mode = "s"
		}
		all = append(all, fmt.Sprintf("waits %d %s %d %d", w.caller, mode, w.since, w.till))
	}
	return all
}
