// Package history records what the processes of a test did with locks, and judges it.
//
// Each process writes events as JSON lines, one line with each write(2), so that a process that is
// killed leaves whole lines. [Read] joins the files of all processes, and [History.Judge] finds
// what must not be. All times are nanoseconds by one clock that the processes share, see [Now].
package history

import "time"

// The events of a process. A set of locks is one acquisition for each of its names.
const (
	Call   = "call"   // acquire was called; Try
	Grant  = "grant"  // acquire returned a lock; Token, Shared, Limit, MinHold
	Alive  = "alive"  // at this time the holder asked whether its lock is held, and the answer was yes
	Lost   = "lost"   // the context of the lock was cancelled; Until, Text
	End    = "end"    // release was called, or the holder stopped using a lost lock
	Failed = "failed" // acquire returned an error; Held, Text
	Write  = "write"  // the guarded resource was written; From, Token, Value, Refused
	Birth  = "birth"  // the process started
	Wrong  = "wrong"  // the process met an error that must not occur; Text

	Death    = "death" // the process was dead at this time; written by the process that killed it
	Injected = "fault" // the harness injected a fault; Name is what, Workers, Server, Text
	Healed   = "heal"  // the fault with this ID ended; without this event it lasts until the end
	Start    = "start" // the time that is 0 in the history; without this event it is the first event
)

// An Event is one line of a history.
type Event struct {
	At      time.Duration `json:"at"`
	Worker  string        `json:"worker"` // the lane of the process: its successor after a kill has the same
	Kind    string        `json:"event"`
	ID      string        `json:"id,omitempty"`   // of the acquisition or the fault, unique in the history
	Name    string        `json:"name,omitempty"` // of the lock
	Token   int64         `json:"token,string,omitempty"`
	Shared  bool          `json:"shared,omitempty"`
	Limit   int           `json:"limit,omitempty"`
	MinHold time.Duration `json:"min_hold,omitempty"`
	Until   time.Duration `json:"until,omitempty"` // of a lost lock: its deadline; 0 if it has none
	Try     bool          `json:"try,omitempty"`   // the call does not wait
	Held    bool          `json:"held,omitempty"`  // of an error: it says that others hold the lock
	From    time.Duration `json:"from,omitempty"`  // of a write: when it began
	Value   int64         `json:"value,omitempty"` // of a write: its place in the order of the resource; 0 if unknown
	Refused bool          `json:"refused,omitempty"`
	Workers []string      `json:"workers,omitempty"` // that a fault is about
	Server  string        `json:"server,omitempty"`  // that a fault is about
	Text    string        `json:"text,omitempty"`
}

// An Acquisition is one lock as its holder saw it. Times are since the start of the history.
type Acquisition struct {
	ID       string
	Name     string
	Worker   string
	Shared   bool
	Limit    int // of shared holders; 0 means none
	Token    int64
	MinHold  time.Duration
	Called   time.Duration // when acquire was called
	Returned time.Duration // when acquire returned
	Until    time.Duration // when the holder last believed that it holds the lock; 0 if it never did
	Lost     time.Duration // when the context of the lock was cancelled by a loss; 0 if it was not
	Deadline time.Duration // of a lost lock: its own deadline; 0 if unknown
	Ended    time.Duration // when it called release; 0 if it never did, because it was killed
	Died     time.Duration // when its process was dead, if it died while it held the lock
	Cause    string        // of the loss
}

// A Wait is a call of acquire. It ended with an acquisition, with an error or with its process.
type Wait struct {
	ID      string // of the acquisition, if it was granted
	Name    string
	Worker  string
	From    time.Duration
	To      time.Duration
	Try     bool // it did not wait for other holders
	Granted bool
	Held    bool   // the error says that others hold the lock
	Text    string // the error
}

// A Fault is what the harness did, to some workers or to a server.
type Fault struct {
	What    string // such as "freeze"
	Workers []string
	Server  string // empty if it is about workers alone
	From    time.Duration
	To      time.Duration
	Text    string // a sentence for people
}

// A Violation is something that must not be.
type Violation struct {
	Rule   string        `json:"rule"` // such as "overlap"
	Name   string        `json:"name"` // of the lock
	At     time.Duration `json:"at"`
	Before string        `json:"before,omitempty"` // IDs of the acquisitions
	After  string        `json:"after,omitempty"`  // the one that should not be as it is
	Text   string        `json:"text"`
}

func (v Violation) String() string { return v.Rule + ": " + v.Text }

// A History records a run.
type History struct {
	Engine       string        `json:"engine"` // its name for readers
	Seed         uint64        `json:"seed"`
	Started      time.Time     `json:"started"`
	Origin       time.Duration `json:"origin"` // when the history started, by the clock of Now
	Length       time.Duration `json:"length"`
	TTL          time.Duration `json:"ttl"`
	Free         time.Duration `json:"free,omitempty"`      // after the end of all workers, until every name could be acquired; 0 if that was not tried
	Workers      []string      `json:"workers"`             // the lanes: of each, processes one after the other
	Rules        Rules         `json:"rules"`               // by which it was judged
	Undecided    []string      `json:"undecided,omitempty"` // names whose acquisitions were too many to search
	Violations   []Violation   `json:"violations,omitempty"`
	Expected     []Violation   `json:"expected,omitempty"` // what the rules allow; it is counted only
	Events       []Event       `json:"-"`                  // as they were recorded; all that follow are made of them
	Acquisitions []Acquisition `json:"-"`
	Waits        []Wait        `json:"-"`
	Writes       []Event       `json:"-"` // each to the resource that checks tokens, under an exclusive lock
	Faults       []Fault       `json:"-"`
	Wrong        []Event       `json:"-"` // errors that must not occur; At is since the start
}
