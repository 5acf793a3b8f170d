package driver

import "time"

// Status describes one name: its holders and its waiters.
type Status struct {
	Name      string
	Mode      Mode
	Limit     int       // the current limit of a shared name; 0 means none
	Holders   []Holder  // oldest first
	Waiters   []Waiter  // next first
	NotBefore time.Time // end of a minimum hold; zero means none
	Trouble   error     // why this may be incomplete or out of date; nil if it is not
}

// Holder is one current acquisition.
type Holder struct {
	Identity
	Owner   string
	Token   int64
	Since   time.Time
	TTL     time.Duration // what is left of the lease; 0 means it has none
	Lease   time.Duration // the whole lease, as requested; 0 means none, or unknown to the engine
	Weight  int           // how many units of the limit it takes; 0 without a limit
	Foreign bool          // held by a program that does not use fencelock
}

// MaxUntil returns the end of the maximum hold that the holder has published, by the clock of Since,
// or zero. The holder may keep the lock for longer: for its grace, on an engine without leases, and
// if it has set another maximum since.
func (h Holder) MaxUntil() time.Time {
	if h.MaxHold == 0 || h.Since.IsZero() {
		return time.Time{}
	}
	return h.Since.Add(h.MaxHold)
}

// Waiter is one waiting request. Its [Identity] has its note and trace.
type Waiter struct {
	Identity
	Owner    string
	Since    time.Time
	Position int // 1 is next
	Weight   int // how many units of the limit it asks for; 0 without a limit
}

// EventKind is the kind of an Event.
type EventKind string

// The kinds of events.
const (
	EventWaiting  EventKind = "waiting"  // a request joined the queue
	EventAcquired EventKind = "acquired" // a request was granted
	EventReleased EventKind = "released" // a holder released its lock
	EventLost     EventKind = "lost"     // a holder died, expired or was broken
	EventLeft     EventKind = "left"     // a waiter gave up or died
)

// Event is one change of a name.
type Event struct {
	Identity
	Kind  EventKind
	Name  string
	Owner string
	Token int64 // 0 for a waiter
	Time  time.Time
}
