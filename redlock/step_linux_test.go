package redlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redlock"
)

// TestClockSteps: forward, leases end early; back, they last. Tokens grow.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	clock := hosttest.NewClock(t)
	var w world
	for range 3 {
		w = append(w, redistest.StartRedisBy(t, clock))
	}
	w.declareNew(t)
	e, other := open(t, w.addrs(), redlock.Config{}), open(t, w.addrs(), redlock.Config{})
	first, _ := retryAcquire(t, e, "x", long)
	clock.Set(2 * long)
	second, l := retryAcquire(t, other, "x", long)
	verdict.Is(t, "Redlock: the clocks of the nodes are set forward", verdict.Guarded, verdict.OfHolders(nil, first.Token, second.Token))
	release(t, other, l)
	third, _ := retryAcquire(t, e, "x", long)
	clock.Set(-time.Hour)
	eventually(t, "an answer", func() bool {
		_, err := try(other, "x", long)
		if err == nil {
			t.Fatal("granted beside the holder")
		}
		return errors.Is(err, driver.ErrHeld)
	})
	if fourth, _ := retryAcquire(t, e, "y", long); third.Token <= second.Token || fourth.Token <= 0 {
		t.Errorf("token %d after %d, and %d", third.Token, second.Token, fourth.Token)
	}
	verdict.Is(t, "Redlock: the clocks of the nodes are set back", verdict.Safe)
}
