package fencelock

import "github.com/fencelock/fencelock/driver"

// What an engine tells about names.
type (
	// Status describes one name: who holds it and who waits. Its fields are
	//
	//	Name      string
	//	Mode      Mode      // Exclusive or Shared
	//	Limit     int       // the limit in force of a shared name; 0 means none
	//	Holders   []Holder  // oldest first
	//	Waiters   []Waiter  // next first
	//	NotBefore time.Time // end of a minimum hold; zero means none
	//	Trouble   error     // why this may not be all, or not be so any more; nil means it is
	Status = driver.Status
	// Holder is one standing acquisition. Its fields are
	//
	//	Host    string // the process that holds, with PID and what it says of itself, Note
	//	PID     int
	//	Note    string
	//	Trace   string // the traceparent of its acquisition; see WithTrace
	//	Owner   string // unique to this acquisition
	//	Token   int64  // its fencing token
	//	Since   time.Time
	//	TTL     time.Duration // what is left of the lease; 0 means it has none
	//	Lease   time.Duration // the whole lease; 0 means none, or unknown to the engine
	//	Weight  int           // how much of the limit it takes; 0 without a limit
	//	Foreign bool          // held by something that is not fencelock
	Holder = driver.Holder
	// Waiter is one waiting request. Its fields are
	//
	//	Host     string // the process that waits, with PID and what it says of itself, Note
	//	PID      int
	//	Note     string
	//	Trace    string // the traceparent of its acquisition; see WithTrace
	//	Owner    string // unique to this request
	//	Since    time.Time
	//	Position int // 1 is next
	//	Weight   int // how much of the limit it asks for; 0 without a limit
	Waiter = driver.Waiter
	// Event is one thing that happened to a name. Its fields are
	//
	//	Host  string // the process, with PID and what it says of itself, Note
	//	PID   int
	//	Note  string
	//	Trace string // the traceparent of the acquisition; see WithTrace
	//	Kind  EventKind
	//	Name  string
	//	Owner string
	//	Token int64 // 0 for a waiter
	//	Time  time.Time
	Event = driver.Event
	// EventKind is what happened to a name.
	EventKind = driver.EventKind
)

// The kinds of events.
const (
	EventWaiting  = driver.EventWaiting  // a request joined the queue
	EventAcquired = driver.EventAcquired // a request was granted
	EventReleased = driver.EventReleased // a holder let go
	EventLost     = driver.EventLost     // a holder died, expired or was broken
	EventLeft     = driver.EventLeft     // a waiter gave up or died
)
