// Package history records what the processes of a test did with locks, and judges it.
//
// Each process writes events as JSON lines, one line with each write(2), so that a process that is
// killed leaves whole lines. [Read] joins the files of all processes. All times are nanoseconds by
// one clock that the processes share: on one machine, its monotonic clock.
package history

import (
	"time"
)

// The events of a process.
const (
	Call   = "call"   // acquire was called
	Grant  = "grant"  // acquire returned a lock; Token, Shared, Limit, MinHold
	Alive  = "alive"  // at this time the holder asked whether its lock is held, and the answer was yes
	Lost   = "lost"   // the context of the lock was cancelled; Until, Text
	End    = "end"    // release was called, or the holder stopped using a lost lock
	Failed = "failed" // acquire returned an error; Text
	Write  = "write"  // the guarded resource was written; Token, Refused
	Birth  = "birth"  // the process started; Host
	Wrong  = "wrong"  // the process met an error that must not occur; Text
)

// An Event is one line of a history.
type Event struct {
	At      time.Duration `json:"at"`
	Worker  string        `json:"worker"` // the lane of the process: its successor after a kill has the same
	Kind    string        `json:"event"`
	ID      string        `json:"id,omitempty"`   // of the acquisition, unique in the history
	Name    string        `json:"name,omitempty"` // of the lock
	Token   int64         `json:"token,string,omitempty"`
	Shared  bool          `json:"shared,omitempty"`
	Limit   int           `json:"limit,omitempty"`
	MinHold time.Duration `json:"min_hold,omitempty"`
	Until   time.Duration `json:"until,omitempty"` // of a lost lock: its deadline; 0 if the engine reported the loss
	Refused bool          `json:"refused,omitempty"`
	Host    string        `json:"host,omitempty"`
	Text    string        `json:"text,omitempty"`
}

// An Acquisition is one lock as its holder saw it. Times are since the start of the history.
type Acquisition struct {
	ID, Name, Worker string
	Shared           bool
	Limit            int // of shared holders; 0 means none
	Token            int64
	MinHold          time.Duration
	Called           time.Duration // when acquire was called
	Returned         time.Duration // when acquire returned
	Until            time.Duration // when the holder last believed that it holds the lock
	Lost             time.Duration // when the context of the lock was cancelled by a loss; 0 if it was not
	Ended            time.Duration // when it called release; 0 if it never did, because it was killed
	Cause            string        // of the loss
}

// A Wait is a call of acquire. It ended with an acquisition, with an error or with its process.
type Wait struct {
	Name, Worker string
	From, To     time.Duration
	Granted      bool
	Text         string // the error
}

// A GuardedWrite is a write to the resource that checks tokens.
type GuardedWrite struct {
	Name, Worker string
	Token        int64
	At           time.Duration
	Refused      bool
}

// A Fault is what the harness did, to some workers or to a server.
type Fault struct {
	What     string // such as "freeze"
	Workers  []string
	Server   string // empty if it is about workers alone
	From, To time.Duration
	Text     string // a sentence for people
}

// A Violation is something that must not be.
type Violation struct {
	Rule          string // such as "overlap"
	Name          string // of the lock
	At            time.Duration
	Before, After string // IDs of the acquisitions; After is the one that should not be as it is
	Text          string
}

// A History is what happened in a run.
type History struct {
	Engine       string // as a person calls it
	Server       string // its version
	Seed         uint64
	Started      time.Time
	Length       time.Duration
	TTL          time.Duration
	Workers      []Worker // in the order of their lanes
	Acquisitions []Acquisition
	Waits        []Wait
	Writes       []GuardedWrite
	Faults       []Fault
	Violations   []Violation
}

// A Worker is a lane of the history: processes, one after the other.
type Worker struct {
	Name, Host string
	Births     []time.Duration
}
