package quorum

import "github.com/fencelock/fencelock/internal/hold"

// Standing is a node's answer to a renewal.
type Standing int

// The standings.
const (
	Silent  Standing = iota // the node did not answer in time
	Renewed                 // the lease is extended
	Free                    // the node has no lock by that name: it restarted, or the lease expired there
	Taken                   // another owner has the lock there
)

// Renewal is one attempt to extend a lock. It is not safe for concurrent use.
type Renewal struct {
	terms    Terms
	sent     hold.Instant
	old      hold.Instant // the start of the lease to extend
	knows    bool         // old is known
	said     []Standing
	answered []bool
	by       []uint64 // the id of the server that answered
	result   Result
}

// Result is how a renewal ended.
type Result int

// The results.
const (
	Open   Result = iota // it has not ended
	Kept                 // a majority renewed
	Gone                 // a majority is no longer possible: the lock is lost
	Failed               // too many nodes did not answer: another attempt may succeed
)

// NewRenewal begins an attempt. The caller reads the time before the call, and sends a request to
// every node after it.
func NewRenewal(terms Terms, now hold.Instant) *Renewal {
	return &Renewal{terms: terms, sent: now, said: make([]Standing, terms.Nodes), answered: make([]bool, terms.Nodes), by: make([]uint64, terms.Nodes)}
}

// Extends sets the start of the lease that this attempt extends: Sent of the acquisition, or of the
// last renewal that was Kept. If a majority has answered only after the end of that lease, the
// renewal has Failed. In between, another client may have held the lock, and a late request or
// repair may then have given the nodes this client's lock again.
func (r *Renewal) Extends(sent hold.Instant) { r.old, r.knows = sent, true }

// Result returns how the renewal ended.
func (r *Renewal) Result() Result { return r.result }

// Sent returns the start of the extended lease.
func (r *Renewal) Sent() hold.Instant { return r.sent }

// Heard processes the answer of a node and returns the nodes to repair: those that lost the lock
// while a majority kept it. server is the id of the server, or 0 if unknown. For a node that does
// not answer in time, the caller passes Silent; a later answer still counts. After the lease has
// expired or was released the caller must not send a repair, because another client may hold the
// lock then.
func (r *Renewal) Heard(node int, s Standing, server uint64, now hold.Instant) (repair []int) {
	if r.answered[node] && (r.said[node] != Silent || s == Silent) {
		return nil
	}
	r.answered[node], r.said[node], r.by[node] = true, s, server
	if r.result == Open {
		r.count(now)
		if r.result == Kept && r.terms.valid(r.sent, now) {
			return r.free()
		}
		return nil
	}
	if r.result == Kept && s == Free && r.terms.valid(r.sent, now) {
		return []int{node}
	}
	return nil
}

func (r *Renewal) count(now hold.Instant) {
	kept, gone, open := 0, 0, 0
	var seen servers
	for i, s := range r.said {
		switch {
		case !r.answered[i]:
			open++
		case s == Renewed:
			if !seen.again(r.by[i]) {
				kept++
			}
		case s == Free || s == Taken:
			gone++
		}
	}
	need := r.terms.Need
	switch {
	case kept >= need && r.late(now):
		r.result = Failed
	case kept >= need:
		r.result = Kept
	case gone > r.terms.Nodes-need:
		r.result = Gone
	case kept+open < need && gone+open <= r.terms.Nodes-need:
		r.result = Failed
	}
}

// late reports whether the lease to extend has expired.
func (r *Renewal) late(now hold.Instant) bool {
	return r.knows && !r.terms.valid(r.old, now)
}

func (r *Renewal) free() (nodes []int) {
	for i, s := range r.said {
		if s == Free {
			nodes = append(nodes, i)
		}
	}
	return nodes
}
