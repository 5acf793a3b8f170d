package main

import (
	"fmt"
	"time"

	"github.com/fencelock/fencelock/lab/evidence"
)

// A scenario is one published fault.
type scenario struct {
	name   string
	peer   string // the library
	module string // its Go module; empty if it is written again from its source
	fault  string // what the thread reports, in a few words
	thread string // the upstream thread
	run    func(*bed) []finding
}

// A finding is what one library did under the scenario's fault.
type finding struct {
	subject string        // the library
	shows   bool          // the fault showed
	wanted  bool          // the fault was expected to show
	seen    string        // what was seen, in words and numbers
	took    time.Duration // the number in seen
}

// play runs the scenario and returns its findings.
func (s scenario) play() ([]evidence.Fault, error) {
	var found []finding
	if err := inBed(func(b *bed) { found = s.run(b) }); err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("found nothing")
	}
	var out []evidence.Fault
	for _, f := range found {
		out = append(out, evidence.Fault{
			Scenario: s.name, Peer: s.peer, Rewritten: s.module == "", Fault: s.fault, Thread: s.thread,
			Subject: f.subject, Shows: f.shows, Seen: f.seen, Millis: millis(f.took), AsExpected: f.shows == f.wanted,
		})
	}
	return out, nil
}

func millis(d time.Duration) int64 { return d.Milliseconds() }

// round is d as the tables print it.
func round(d time.Duration) string {
	switch {
	case d.Abs() < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d.Abs() < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
