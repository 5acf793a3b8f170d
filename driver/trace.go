package driver

import "strings"

// TraceRate describes a decision of package ratelimit. It is here because that package does not
// import package fencelock.
type TraceRate struct {
	Limiter string
	Engine  string // the name of the engine; empty if it has none
	Key     string
	Asked   int   // the events that the caller asked for
	Granted int   // those that were granted
	Err     error // why the engine was down; nil if it decided
}

// ValidTrace reports whether text is a traceparent of W3C Trace Context, version 00: "00-", 32
// hexadecimal digits of the trace ID, "-", 16 of the span ID, "-", and 2 of the flags. Digits must
// be lower case, and neither ID may be all zeros.
func ValidTrace(text string) bool {
	if len(text) != 55 || !strings.HasPrefix(text, "00-") { // fast path: most requests have none
		return false
	}
	parts := strings.Split(text, "-")
	if len(parts) != 4 {
		return false
	}
	for i, digits := range [...]int{2, 32, 16, 2} {
		if len(parts[i]) != digits || strings.Trim(parts[i], "0123456789abcdef") != "" {
			return false
		}
	}
	return strings.Trim(parts[1], "0") != "" && strings.Trim(parts[2], "0") != ""
}
