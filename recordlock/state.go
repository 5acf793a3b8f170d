package recordlock

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/identity"
	"github.com/fencelock/fencelock/internal/limits"
)

const (
	format     = 1    // of the records that this version writes
	maxWaiters = 128  // in a record; with more, each change costs more than a place is worth
	maxText    = 1024 // bytes of a note or a reason that are stored

	// maxGrown is the length in bytes beyond which no holder or waiter is added. It is six sevenths of the
	// smallest limit of a store, that of Kubernetes: a renewal, a release or a break always fits.
	maxGrown = 216 << 10
	// leaseText is the most bytes of the lease, and of the token or the ticket, that a claim gets later.
	leaseText = 128
)

// state is the value of a record: everything about one name.
type state struct {
	Format  int      `json:"format"`
	Name    string   `json:"name"`
	Last    int64    `json:"last"`              // the last token
	Limit   int      `json:"limit,omitempty"`   // set by Resize; 0 is the limit of the requests
	Closed  *closing `json:"closed,omitempty"`  // the minimum hold
	Holders []claim  `json:"holders,omitempty"` // by token
	Waiters []claim  `json:"waiters,omitempty"` // by ticket: the next one is the first
	Broken  int64    `json:"broken,omitempty"`  // the token of the last break
	Reason  string   `json:"reason,omitempty"`  // of the last break

	grown int // its length with all that was added; 0 if it was not measured
}

// closing is a minimum hold: a lease that nobody renews.
type closing struct {
	Owner string `json:"owner"` // the acquisition that began it
	lease
}

// claim is a request in a record: a holder, or a waiter. It lasts as long as its lease.
type claim struct {
	lease
	Owner  string `json:"owner"`
	Shared bool   `json:"shared,omitempty"`
	Limit  int    `json:"limit,omitempty"`
	Weight int    `json:"weight,omitempty"`
	Since  int64  `json:"since"` // microseconds since 1970, by the wall clock of its process
	identity.JSON
	Token  int64  `json:"token,omitempty"`  // of a holder
	Ticket int64  `json:"ticket,omitempty"` // of a waiter
	Client string `json:"client,omitempty"` // of a waiter: its worker
}

// decode reads the value of a record. No value is a name that nobody uses.
func decode(name string, value []byte) (*state, error) {
	if len(value) == 0 {
		return &state{Format: format, Name: name}, nil
	}
	st := &state{}
	switch err := json.Unmarshal(value, st); {
	case err != nil, st.Format == 0:
		return nil, fmt.Errorf("%w: the record of %q is no lock", driver.ErrConfig, name)
	case st.Format > format:
		return nil, fmt.Errorf("%w: a newer version of fencelock has written the record of %q; update this one", driver.ErrConfig, name)
	case name != "" && st.Name != name:
		return nil, fmt.Errorf("%w: the record of %q is about %q", driver.ErrConfig, name, st.Name)
	}
	return st, nil
}

// encode returns the JSON of a state or a claim. They have texts and numbers only.
func encode(v any) []byte {
	value, _ := json.Marshal(v)
	return value
}

// clone returns a copy that can be changed.
func (st *state) clone() *state {
	c := *st
	c.Holders, c.Waiters, c.grown = slices.Clone(st.Holders), slices.Clone(st.Waiters), 0
	return &c
}

// prune removes what is over at m, and returns when the next lease of the rest ends.
func (st *state) prune(m moment, seen sightings) (next time.Duration) {
	over := func(id string, l lease) bool {
		left := seen.left(id, l, m)
		if left > 0 && (next == 0 || left < next) {
			next = left
		}
		return left <= 0
	}
	dead := func(c claim) bool { return over(c.id(), c.lease) }
	st.Holders, st.Waiters = slices.DeleteFunc(st.Holders, dead), slices.DeleteFunc(st.Waiters, dead)
	if st.Closed != nil && over(minimum, st.Closed.lease) {
		st.Closed = nil
	}
	return next
}

// find returns the index of an owner among holders or waiters, or -1.
func find(claims []claim, owner string) int {
	return slices.IndexFunc(claims, func(c claim) bool { return c.Owner == owner })
}

// holder returns the holder with an owner, or nil.
func (st *state) holder(owner string) *claim {
	if i := find(st.Holders, owner); i >= 0 {
		return &st.Holders[i]
	}
	return nil
}

// remove removes the holder or waiter with an owner.
func (st *state) remove(owner string) {
	those := func(c claim) bool { return c.Owner == owner }
	st.Holders, st.Waiters = slices.DeleteFunc(st.Holders, those), slices.DeleteFunc(st.Waiters, those)
}

// undo is remove for a request whose caller has gone, or that was broken: its minimum hold ends, too.
func (st *state) undo(owner string) {
	st.remove(owner)
	if st.Closed != nil && st.Closed.Owner == owner {
		st.Closed = nil
	}
}

// grow counts the length of a claim that is to be added. It reports whether there is room for that.
func (st *state) grow(c claim) bool {
	if st.grown == 0 {
		st.grown = len(encode(st))
	}
	st.grown += len(encode(c)) + leaseText
	return st.grown <= maxGrown
}

// checkLimit returns the error of a request whose limit differs from that of the others.
func (st *state) checkLimit(c claim) error {
	for _, o := range slices.Concat(st.Holders, st.Waiters) {
		agreed := o.Limit == c.Limit || st.Limit > 0 && o.Limit > 0 && c.Limit > 0
		if c.Shared && o.Shared && !agreed {
			return limits.Differ(st.Name, o.Limit, c.Limit)
		}
	}
	return nil
}

// fits reports whether a request may hold the name now, beside the holders and all waiters before a
// place. A waiter that does not fit keeps those behind it from being granted.
func (st *state) fits(c claim, place int) bool {
	taken, exclusive := 0, false
	for _, o := range slices.Concat(st.Holders, st.Waiters[:place], []claim{c}) {
		if taken > 0 && (exclusive || !o.Shared || o.Limit > 0 && taken+o.units() > cmp.Or(st.Limit, o.Limit)) {
			return false
		}
		taken += o.units()
		exclusive = !o.Shared
	}
	return st.Closed == nil
}

// issue returns a number greater than all earlier ones. It is not below the clocks, so that a
// record that was deleted or has expired does not start again at 1.
func (st *state) issue(m moment) int64 {
	st.Last = max(st.Last+1, m.wall.UnixMicro())
	if m.known {
		st.Last = max(st.Last, m.latest.UnixMicro())
	}
	return st.Last
}

// id is the key of a claim in sightings. A holder is no continuation of its place: their beats may be
// equal if a wall clock was set back.
func (c claim) id() string {
	if c.Ticket > 0 {
		return "place of " + c.Owner
	}
	return c.Owner
}

// units returns how much of a limit a request takes.
func (c claim) units() int { return max(1, c.Weight) }

func (c claim) since() time.Time { return time.UnixMicro(c.Since) }

// lone returns how long the record of a name is kept that nobody uses, or 0 if it is in use or has
// a limit. Later tokens are greater since they are not below the clock by which the record expires.
// Without the store's clock, the clocks of the clients may differ by a day. A minimum hold does not end
// because the store's clock is set, unless that is by more than a day.
func (st *state) lone(m moment) time.Duration {
	if len(st.Holders) > 0 || len(st.Waiters) > 0 || st.Limit > 0 {
		return 0
	}
	keep, now := 24*time.Hour, m.wall
	if m.known {
		keep, now = 10*time.Minute, m.earliest
	}
	if st.Closed != nil {
		keep = 24*time.Hour + micros(st.Closed.TTL)
	}
	return min(keep+max(0, time.UnixMicro(st.Last).Sub(now)), driver.MaxDuration)
}
