package history

import "time"

// Stats are the figures of a run.
type Stats struct {
	Acquisitions int
	WaitP50      time.Duration
	WaitP99      time.Duration
	Closed       Stretch // the longest stretch in which nobody held a lock that was wanted
	Losses       int
	// Margin is the smallest time from the moment at which a holder stopped believing, at its
	// deadline or at the signal, to the next grant. Signal is the same for the signal alone: it is
	// negative if the process was frozen at its deadline.
	Margin, Signal Margin
	Accepted       int // writes
	Refused        int // late writes
	Turns          []Turns
	Fairness       float64 // Jain's index of the turns: 1 if all are equal, 1/n if one worker has all
}

// A Stretch is a time in which nobody held a lock.
type Stretch struct {
	Name     string
	From, To time.Duration
	After    string // the ID of the acquisition before; empty if there was none
	Died     bool   // its process died
	Try      bool   // a worker that did not wait met it
}

// Length returns how long it was.
func (s Stretch) Length() time.Duration { return s.To - s.From }

// A Margin is the time from a loss to the next grant.
type Margin struct {
	Known        bool // there was a loss, and a grant after it
	By           time.Duration
	Before, Next string // IDs of the acquisitions
}

// Turns are how often a worker acquired a lock.
type Turns struct {
	Worker string
	Count  int
}
