package hosttest

import "context"

// TB is what starting a server needs of a test. Tests pass their *testing.T. A program that starts
// servers passes an implementation of its own, so that it does not contain package testing.
//
// As in a test, Fatal and Fatalf do not return, and what Cleanup was given runs in reverse order.
type TB interface {
	Helper()
	Name() string
	Context() context.Context
	Cleanup(func())
	Failed() bool
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}
