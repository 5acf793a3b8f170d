package driver

import (
	"context"
	"time"
)

// Inspector finds settings of an engine or its server that weaken the guarantees of locks.
type Inspector interface {
	// Inspect uses the engine on probe names, for locks of the given TTL. It removes the probe
	// names and changes nothing else. It returns an error only if the engine cannot be examined at
	// all. Problems that it finds are in the findings.
	Inspect(ctx context.Context, ttl time.Duration) ([]Finding, error)
}

// Severity is how serious a finding is.
type Severity int

// The severities.
const (
	Good    Severity = iota // as it should be
	Unknown                 // could not be determined
	Warning                 // weakens a guarantee in some failures
	Broken                  // breaks a guarantee, or locks do not work at all
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

// Finding is the result of one check.
type Finding struct {
	Check    string // what was checked, in a word or two, such as "eviction"
	Severity Severity
	Observed string // what was found: a value or a message of the engine
	Impact   string // what it means for the guarantees; empty if good
	Fix      string // what to do about it; empty if good
}
