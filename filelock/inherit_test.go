package filelock_test

import (
	"errors"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/filelock"
)

// What Inherit has returned keeps the lock, however soon a Release comes.
func TestInheritBesideRelease(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	e, other := filelock.New(dir, nil), filelock.New(dir, nil)
	for i := range 200 {
		// Not at once: a process that another test forks may have the descriptors for a moment.
		l := leaseOf("a", acquire(t, e, request("a")))
		released := make(chan error, 1)
		go func() { released <- e.Release(t.Context(), l) }() // ends by itself
		files, err := e.Inherit(l)
		if err := await(t, released, "the release"); err != nil {
			t.Fatal(err)
		}
		g, held := other.Acquire(t.Context(), request("a"))
		switch {
		case err == nil && errors.Is(held, driver.ErrHeld):
			for _, f := range files {
				f.Close()
			}
		case errors.Is(err, driver.ErrNotHeld) && held == nil:
			release(t, other, leaseOf("a", g))
		default:
			t.Fatalf("turn %d: Inherit: %v, and then somebody else: %v", i, err, held)
		}
	}
}
