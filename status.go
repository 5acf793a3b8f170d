package fencelock

import "github.com/fencelock/fencelock/driver"

// What an engine reports about names.
type (
	// Status describes one name: its holders and its waiters. Its fields are
	//
	//	Name      string
	//	Mode      Mode      // Exclusive or Shared
	//	Limit     int       // the current limit of a shared name; 0 means none
	//	Holders   []Holder  // oldest first
	//	Waiters   []Waiter  // next first
	//	NotBefore time.Time // end of a minimum hold; zero means none
	//	Trouble   error     // why this may be incomplete or out of date; nil if it is not
	Status = driver.Status
	// Holder is one current acquisition. Its fields are
	//
	//	Host    string // the host of the holding process
	//	PID     int    // its process ID
	//	Note    string // the note of the lock; see Options.Note
	//	Trace   string // the traceparent of its acquisition; see WithTrace
	//	Kind    string // as Options.Kind, such as KindElection
	//	MaxHold time.Duration // as it was acquired, 0 means none; see Options.MaxHold
	//	Owner   string // unique to this acquisition
	//	Token   int64  // its fencing token
	//	Since   time.Time
	//	TTL     time.Duration // what is left of the lease; 0 means it has none
	//	Lease   time.Duration // the whole lease; 0 means none, or unknown to the engine
	//	Weight  int           // how many units of the limit it takes; 0 without a limit
	//	Foreign bool          // held by a program that does not use fencelock
	Holder = driver.Holder
	// Waiter is one waiting request. Its fields are
	//
	//	Host     string // the host of the waiting process
	//	PID      int    // its process ID
	//	Note     string // the note of the request; see Options.Note
	//	Trace    string // the traceparent of its acquisition; see WithTrace
	//	Kind     string // as Options.Kind, such as KindElection
	//	MaxHold  time.Duration // of the request, 0 means none; see Options.MaxHold
	//	Owner    string // unique to this request
	//	Since    time.Time
	//	Position int // 1 is next
	//	Weight   int // how many units of the limit it asks for; 0 without a limit
	Waiter = driver.Waiter
	// Event is one change of a name. Its fields are
	//
	//	Host  string // the host of the process
	//	PID   int    // its process ID
	//	Note  string // the note of the request; see Options.Note
	//	Trace string // the traceparent of the acquisition; see WithTrace
	//	MaxHold time.Duration // of the acquisition, 0 means none; see Options.MaxHold
	//	Kind  EventKind
	//	Name  string
	//	Owner string
	//	Token int64 // 0 for a waiter
	//	Time  time.Time
	Event = driver.Event
	// EventKind is the kind of an Event.
	EventKind = driver.EventKind
)

// The kinds of events.
const (
	EventWaiting  = driver.EventWaiting  // a request joined the queue
	EventAcquired = driver.EventAcquired // a request was granted
	EventReleased = driver.EventReleased // a holder released its lock
	EventLost     = driver.EventLost     // a holder died, expired or was broken
	EventLeft     = driver.EventLeft     // a waiter gave up or died
)
