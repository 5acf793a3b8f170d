package drivertest_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fencelock/fencelock/driver/drivertest"
)

// examine puts one case to an engine, in a bubble, and returns the failures.
func examine(t *testing.T, c drivertest.Case, e drivertest.Suite) (failures []string) {
	synctest.Test(t, func(t *testing.T) {
		failures, _ = drivertest.Collect(t, func(t testing.TB) { e.Put(t, c) })
	})
	return failures
}

// A known failure is none, and one that is over must come off the list.
func TestKnownFailures(t *testing.T) {
	known := map[string]string{"names": "not written yet"}
	for _, c := range drivertest.Cases() {
		if c.Name != "names" {
			continue
		}
		e := suiteOf(func(*broken) {})
		e.Known = known
		if failures := examine(t, c, e); len(failures) != 1 || !strings.Contains(failures[0], "not written yet") {
			t.Errorf("a known failure that is over: %q", failures)
		}
		e = suiteOf(func(b *broken) { b.rename(lowerCase) })
		e.Known = known
		if failures := examine(t, c, e); len(failures) != 0 {
			t.Errorf("a known failure: %q", failures)
		}
		e.Known = nil
		if failures := examine(t, c, e); len(failures) == 0 {
			t.Error("a failure that is not known went unseen")
		}
	}
}
