package examtest

import (
	"errors"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver/drivertest"
)

// Passed is a lock that one process passed on to another.
type Passed struct {
	State          error // what the first process knew when the other one had it
	Earlier, Later int64 // the tokens
}

// PassOn lets a process acquire a lock and another one adopt it, with Detach or without. A third
// process gets the lease too, and cannot adopt it. The first process cannot renew any more.
func PassOn(t testing.TB, w drivertest.World, detach bool) Passed {
	t.Helper()
	const name = "passed"
	here, there, late := fencelock.New(w.Client(t), nil), fencelock.New(w.Client(t), nil), fencelock.New(w.Client(t), nil)
	first, err := here.Acquire(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if detach {
		if err := first.Detach(); err != nil {
			t.Fatal(err)
		}
	}
	next, err := there.Adopt(t.Context(), first.Lease())
	if err != nil {
		t.Fatalf("adopting what was passed on: %v", err)
	}
	state := first.Err()
	if _, err := late.Adopt(t.Context(), first.Lease()); !errors.Is(err, fencelock.ErrNotHeld) {
		t.Errorf("adopting a second time: %v", err)
	}
	if err := first.Release(); !detach && !errors.Is(err, fencelock.ErrNotHeld) {
		t.Errorf("the first holder releases: %v", err)
	}
	if _, err := late.TryAcquire(t.Context(), name); !errors.Is(err, fencelock.ErrHeld) {
		t.Errorf("while the adopter holds the lock: %v", err)
	}
	if err := next.Err(); err != nil {
		t.Error(err)
	}
	if err := next.Release(); err != nil {
		t.Error(err)
	}
	return Passed{state, first.Token(), next.Token()}
}
