//go:build unix

package semaphore_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/testkit/crew"
	"github.com/fencelock/fencelock/internal/testkit/engines"
	"github.com/fencelock/fencelock/semaphore"
)

func TestMain(m *testing.M) { crew.Main(m, map[string]crew.Job{"worker": crew.Of(orders.obey)}) }

// slow is set for the fleets of full size, on every engine.
var slow = os.Getenv("FENCELOCK_SLOW") != ""

// eachStore runs a test on every engine with limits; in an ordinary run, without
// PostgreSQL.
func eachStore(t *testing.T, test func(t *testing.T, s engines.Store)) {
	for _, kind := range []string{"files", "redis", "postgres"} {
		if kind != "postgres" || slow {
			t.Run(kind, func(t *testing.T) { test(t, engines.Start(t, kind, longTTL)) })
		}
	}
}

// visit makes a client of the store for the test itself.
func visit(t *testing.T, s engines.Store) (*semaphore.Semaphore, *fencelock.Locker) {
	t.Helper()
	locks := fencelock.New(s.Connect(t), nil).With(fencelock.Options{TTL: longTTL})
	return semaphore.New(locks, name, size), locks
}

// A majority cannot count holders, and says so.
func TestEnginesWithoutLimits(t *testing.T) {
	locks := fencelock.New(engines.All(fleetTTL)["redlock"](t)(), nil).With(fencelock.Options{TTL: fleetTTL})
	s := semaphore.New(locks, name, size)
	_, err := s.TryAcquire(t.Context(), 1)
	want(t, "TryAcquire", err, fencelock.ErrUnsupported)
	_, err = s.Acquire(t.Context(), 2)
	want(t, "Acquire", err, fencelock.ErrUnsupported)
	want(t, "Do", s.Do(t.Context(), 1, nil), fencelock.ErrUnsupported)
	want(t, "Resize", s.Resize(t.Context(), 3), fencelock.ErrUnsupported)
	if got := fmt.Sprint(err); got != "not supported by this engine: redlock has no shared mode with a limit" {
		t.Error(got)
	}
}
