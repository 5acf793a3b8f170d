// Package examtest runs the conformance suite (package drivertest), or a part of it, on engines and
// stores of this module.
package examtest

import (
	"testing"

	"github.com/fencelock/fencelock/driver/drivertest"
)

// Parallel is drivertest.Run for independent Worlds: it runs as many cases at the same time as go
// test allows. A case is not skipped if another one has failed by the same omission.
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
