package sim

// kind is a kind of event.
type kind uint8

// The kinds of events.
const (
	// Requests, which arrive at a node.
	evAsk kind = iota
	evRaise
	evRenew
	evRepair
	evRelease
	evLeave
	// Answers, which arrive at a client.
	evVote
	evRaised
	evStanding
	evTold
	// Timers and actions of a client.
	evTry
	evAskLimit
	evRaiseLimit
	evExpire
	evTick
	evRenewLimit
	evCheck
	evDone
	// A write arrives at the protected resource.
	evWrite
	// Faults and replication.
	evFault
	evSync
)

var kindNames = [...]string{
	"ask", "raise", "renew", "repair", "release", "leave", "vote", "raised", "standing", "told",
	"try", "ask limit", "raise limit", "expire", "tick", "renew limit", "check", "done",
	"write", "fault", "replica in sync",
}

// event is an event in simulated time.
type event struct {
	at     int64  // nanoseconds
	seq    uint32 // orders events of the same time
	round  uint32 // the number of a renewal, timer, attempt or waiting request
	owner  Owner
	from   Owner // in an ask: the owner to adopt from; 0 if it does not adopt
	kind   kind
	client uint8
	node   uint8
	answer uint8 // a Status, a quorum.Standing, or 1 for yes
	flags  flags
	server uint32 // the id of the server that answers
	token  int64
	floor  int64 // in a request: the lease, or the minimum hold, in microseconds
	by     int64 // the deadline, by the node's clock; in an answer: the node's clock
	waited int64 // in microseconds
}

// flags are the boolean fields of a message.
type flags uint8

const (
	shared flags = 1 << iota
	forced
	joins
	goesFirst
	goesNext
	quiet // the release notifies no waiter
	failed
	twice // the network has duplicated the message
)

// queue is a heap of events. Each node has four children, which needs fewer cache lines than two.
type queue struct {
	events []event
	seq    uint32
}

func (q *queue) reset() { q.events, q.seq = q.events[:0], 0 }

func before(a, b *event) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

func (q *queue) push(e event) {
	q.seq++
	e.seq = q.seq
	q.events = append(q.events, e)
	h := q.events
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !before(&e, &h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
}

func (q *queue) pop() event {
	h := q.events
	top, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	q.events = h
	if len(h) == 0 {
		return top
	}
	i := 0
	for {
		first := 4*i + 1
		if first >= len(h) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(h)); c++ {
			if before(&h[c], &h[least]) {
				least = c
			}
		}
		if !before(&h[least], &last) {
			break
		}
		h[i] = h[least]
		i = least
	}
	h[i] = last
	return top
}
