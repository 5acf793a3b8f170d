//go:build unix

package semaphore_test

import (
	"fmt"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/testkit/engines"
	"github.com/fencelock/fencelock/semaphore"
)

// A majority cannot count holders, and says so.
func TestEnginesWithoutLimits(t *testing.T) {
	locks := fencelock.New(engines.All(ttl)["redlock"](t)(), nil).With(fencelock.Options{TTL: ttl})
	s := semaphore.New(locks, name, 5)
	_, err := s.TryAcquire(t.Context(), 1)
	want(t, "TryAcquire", err, fencelock.ErrUnsupported)
	_, err = s.Acquire(t.Context(), 2)
	want(t, "Acquire", err, fencelock.ErrUnsupported)
	want(t, "Do", s.Do(t.Context(), 1, nil), fencelock.ErrUnsupported)
	want(t, "Resize", s.Resize(t.Context(), 3), fencelock.ErrUnsupported)
	if got := fmt.Sprint(err); got != "not supported by this engine: redlock does not support limits" {
		t.Error(got)
	}
}
