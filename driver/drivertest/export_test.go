package drivertest

import "testing"

// Collect runs a case and returns its failures, or why it was skipped.
func Collect(t testing.TB, run func(testing.TB)) (failures []string, skipped string) {
	return collect(t, run)
}

// Put puts one case, which must fail if that is known, outside a bubble of its own.
func (e Suite) Put(t testing.TB, c Case) { e.put(t, c) }
