// Package verdict records what tests have shown about the failures in docs/failures.md.
//
// A scenario is a row of a failure table: the heading above the table, a colon and the row's first
// cell, without marks, such as "Redis: the holder is killed". The page's verdicts are written from a
// run of the tests (make guarantees).
package verdict

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

// Verdict is what a failure does to mutual exclusion.
type Verdict string

const (
	// Safe means that two processes never consider themselves holders at the same time.
	Safe Verdict = "safe"
	// Guarded means that a process may act as a holder after another one was granted the lock. A
	// guard refuses its writes.
	Guarded Verdict = "safe with a guard"
	// Refused means that the caller gets an error instead of a lock.
	Refused Verdict = "refused"
	// Unsafe means that a guard may accept writes of an earlier holder after those of a later one.
	Unsafe Verdict = "unsafe"
)

// Separator is between the scenario and the verdict in the attribute "verdict" of a test.
const Separator = " = "

// Is records that the test shows this verdict for a scenario. Seen are the verdicts that follow from
// what the test observed, see OfHolders and OfError; one that differs fails the test. Without any,
// the assertions of the test are the verdict. Nothing is recorded if the test fails or is skipped,
// also after the call and in its subtests.
func Is(t testing.TB, scenario string, want Verdict, seen ...Verdict) {
	t.Helper()
	if i := slices.IndexFunc(seen, func(v Verdict) bool { return v != want }); i >= 0 {
		t.Errorf("%s: %s, want %s", scenario, seen[i], want)
	}
	t.Cleanup(func() {
		if !t.Failed() && !t.Skipped() {
			t.Attr("verdict", scenario+Separator+string(want))
		}
	})
}

// OfHolders is the verdict on two holders that follow one another. State is what the earlier holder
// knew when the later one had been granted the lock: driver.ErrLost or driver.ErrNotHeld if its
// check or its renewal said so, and nil if it still considered itself a holder or could not look.
// In that case a guard decides. The later holder writes first, and then the earlier one.
func OfHolders(state error, earlier, later int64) Verdict {
	if errors.Is(state, driver.ErrLost) || errors.Is(state, driver.ErrNotHeld) {
		return Safe
	}
	var guard fence.Memory
	write := func(token int64) error {
		return guard.Check(context.Background(), "resource", fence.Fence{Name: "n", Token: token, Floor: token})
	}
	if write(later) == nil && errors.Is(write(earlier), fence.ErrStale) {
		return Guarded
	}
	return Unsafe
}

// OfError is the verdict on an acquire that returned err.
func OfError(err error) Verdict {
	switch {
	case err == nil:
		return "granted"
	case errors.Is(err, driver.ErrHeld):
		return "held"
	}
	return Refused
}
