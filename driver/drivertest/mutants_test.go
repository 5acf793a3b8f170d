package drivertest_test

import (
	"slices"
	"testing"

	"github.com/fencelock/fencelock/driver/drivertest"
)

// mutant is a broken engine and the case that must notice.
type mutant struct {
	name, fails string
	infect      func(*broken)
}

// TestMutants fails unless each broken engine fails the case that is there for
// it. With -v it tells every case that noticed.
func TestMutants(t *testing.T) {
	for _, m := range slices.Concat(holding, tokens, waiting, answering, asking, weighing, resizing, joining, recording, rating) {
		t.Run(m.name, func(t *testing.T) { mustFail(t, m.fails, exam(m.infect)) })
	}
}

// mustFail fails t unless the engine fails the case of this name.
func mustFail(t *testing.T, name string, e drivertest.Suite) {
	traits := e.World(t).Client(t).Traits()
	noticed := false
	for _, c := range drivertest.Cases() {
		if c.Name != name && !(testing.Verbose() && c.Needs(traits)) {
			continue
		}
		if failures := examine(t, c, e); len(failures) > 0 {
			noticed = noticed || c.Name == name
			t.Logf("%s: %.200s", c.Name, failures[0])
		}
	}
	if !noticed {
		t.Errorf("%q passed, or there is no such case", name)
	}
}

// TestUnbroken proves that the wrapping of a mutant is no fault by itself.
func TestUnbroken(t *testing.T) {
	drivertest.Run(t, exam(func(*broken) {}))
}
