package driver

import (
	"context"
	"time"
)

// Inspector looks for what in an engine's configuration weakens its promises.
type Inspector interface {
	// Inspect uses the engine on probe names of its own, for locks of the given TTL, and
	// leaves nothing of them. It changes nothing else. The error is for an
	// engine that cannot be examined at all; what is wrong with one that can is
	// in the findings.
	Inspect(ctx context.Context, ttl time.Duration) ([]Finding, error)
}

// Severity is how bad a finding is.
type Severity int

// The severities.
const (
	Good    Severity = iota // as it should be
	Unknown                 // could not be found out
	Warning                 // weakens a promise in some failures
	Broken                  // breaks a promise, or locks do not work at all
)

// String returns "good", "unknown", "warning" or "broken".
func (s Severity) String() string {
	switch s {
	case Good:
		return "good"
	case Unknown:
		return "unknown"
	case Warning:
		return "warning"
	default:
		return "broken"
	}
}

// Finding is one thing an inspection looked at.
type Finding struct {
	Check    string // what was looked at, in a word or two, such as "eviction"
	Severity Severity
	Observed string // what was found: a value, or the engine's own words
	Impact   string // what it means for the promises; empty if good
	Fix      string // what to do about it; empty if good
}
