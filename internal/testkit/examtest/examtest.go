// Package examtest runs the conformance suite of package drivertest on an engine of this module,
// with its cases in parallel.
package examtest

import (
	"testing"

	"github.com/fencelock/fencelock/driver/drivertest"
)

// Parallel is drivertest.Run for worlds that have nothing in common: several cases are
// put at the same time, as many as go test allows. A case is not skipped because another
// one has failed by what both need.
func Parallel(t *testing.T, s drivertest.Suite) {
	t.Helper()
	if len(s.Known) > 0 || s.Bubble {
		t.Fatal("there is no need for that yet: use drivertest.Run")
	}
	traits := s.World(t).Client(t).Traits()
	for _, c := range drivertest.Cases() {
		if c.Needs(traits) {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				c.Run(t, s)
			})
		}
	}
}
