package filelock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/filelock"
)

// minHold makes requests with a minimum hold.
func minHold(d time.Duration) driver.Request {
	req := request("a")
	req.MinHold = d
	return req
}

// A request that ends in the instant of its grant gives that back, and its minimum hold
// with it: nobody has held the name.
func TestAGrantGivenBackLeavesNoMinimumHold(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	e, other := filelock.New(dir, nil), filelock.New(dir, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var granted <-chan driver.Grant
	e.SetHook(func(int64) {
		granted = queueUp(t, t.Context(), other, "a")
		cancel()
	})
	if _, err := e.Acquire(ctx, minHold(time.Hour)); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want that the context has ended", err)
	}
	release(t, other, leaseOf("a", await(t, granted, "the grant of who waited behind")))
}

// A grant that was broken before its request ended leaves the minimum hold of the next
// holder alone.
func TestAGrantGivenBackLeavesAnothersMinimumHold(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	e, other := filelock.New(dir, nil), filelock.New(dir, nil)
	ctx, cancel := context.WithCancel(t.Context())
	e.SetHook(func(int64) {
		if _, err := other.Break(t.Context(), "a", "test"); err != nil {
			t.Error(err)
		}
		release(t, other, leaseOf("a", acquire(t, other, minHold(time.Hour))))
		cancel()
	})
	if _, err := e.Acquire(ctx, minHold(time.Minute)); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want that the context has ended", err)
	}
	if _, err := other.Acquire(t.Context(), request("a")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("got %v, want that the minimum hold keeps the name", err)
	}
}
