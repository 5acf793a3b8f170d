package quorum

import "github.com/fencelock/fencelock/internal/hold"

// Standing is a node's answer to a renewal.
type Standing int

// The standings.
const (
	Silent  Standing = iota // it did not answer in time
	Renewed                 // the lease begins anew
	Free                    // it has no lock by that name: it restarted, or the lease ran out there
	Taken                   // somebody else's lock is there
)

// Renewal is one attempt to extend a lock. It is not safe for concurrent use.
type Renewal struct {
	terms  Terms
	sent   hold.Instant
	old    hold.Instant // from when the lease counts that is to be extended
	knows  bool         // old is known
	said   []Standing
	heard  []bool
	by     []uint64 // which server said so
	result Result
}

// Result is how a renewal ended.
type Result int

// The results.
const (
	Open   Result = iota // it has not ended
	Kept                 // a majority renewed
	Gone                 // a majority cannot be had any more: the lock is lost
	Failed               // too many nodes did not answer, so neither is known: worth another try
)

// NewRenewal begins an attempt. The caller has read the time and then asks every
// node.
func NewRenewal(terms Terms, now hold.Instant) *Renewal {
	return &Renewal{terms: terms, sent: now, said: make([]Standing, terms.Nodes), heard: make([]bool, terms.Nodes), by: make([]uint64, terms.Nodes)}
}

// Extends tells from when the lease counts that this attempt extends: the
// acquisition's Sent, or that of the last renewal that was kept. A majority heard
// of after that lease's end proves nothing, because nodes can have got the lock
// anew in between, from a request for it or a repair that was late: others may
// have come and gone. Such a renewal has failed.
func (r *Renewal) Extends(sent hold.Instant) { r.old, r.knows = sent, true }

// Result returns how the renewal ended.
func (r *Renewal) Result() Result { return r.result }

// Sent returns the time from which the extended lease counts.
func (r *Renewal) Sent() hold.Instant { return r.sent }

// Heard takes the answer of a node, and of which server (0 if unknown), and
// returns the nodes to repair: those that lost the lock while a majority kept it. A node that did not answer in time is given
// up as Silent; should it answer after all, that counts. A repair must not be
// sent once the lease is over or released: it would revive a lock that somebody
// else may have taken.
func (r *Renewal) Heard(node int, s Standing, server uint64, now hold.Instant) (repair []int) {
	if r.heard[node] && (r.said[node] != Silent || s == Silent) {
		return nil
	}
	r.heard[node], r.said[node], r.by[node] = true, s, server
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
		case !r.heard[i]:
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

// late reports whether the lease that was to be extended is over.
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
