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
// it. With -v it tells what the case said.
func TestMutants(t *testing.T) {
	for _, m := range slices.Concat(holding, adopting, tokens, waiting, answering, asking, weighing, resizing, joining, recording, rating) {
		t.Run(m.name, func(t *testing.T) { mustFail(t, m.fails, suiteOf(m.infect)) })
	}
}

// mustFail fails t unless the engine fails the case of this name. No other case looks at it: what
// is broken may keep one waiting for ever.
func mustFail(t *testing.T, name string, e drivertest.Suite) {
	i := slices.IndexFunc(drivertest.Cases(), func(c drivertest.Case) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no case %q", name)
	}
	failures := examine(t, drivertest.Cases()[i], e)
	if len(failures) == 0 {
		t.Fatalf("%q passed", name)
	}
	t.Logf("%s: %.200s", name, failures[0])
}

// TestUnbroken proves that the wrapping of a mutant is no fault by itself.
func TestUnbroken(t *testing.T) {
	drivertest.Run(t, suiteOf(func(*broken) {}))
}
