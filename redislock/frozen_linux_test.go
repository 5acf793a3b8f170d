package redislock_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// TestFrozenProcessAfterAClockStep: the server's clock is set back, and a process with
// several waiters is frozen. It costs one grant, not one for each of them.
func TestFrozenProcessAfterAClockStep(t *testing.T) {
	t.Parallel()
	clock := hosttest.NewClock(t)
	s := scene{TB: t, server: redistest.StartRedisBy(t, clock), looks: &observer{}, brisk: true}
	h := s.hold(s.engine(nil), request("n"))
	e, tap := s.tapped(nil)
	for range 20 {
		s.queue(e, request("n"))
	}
	w := s.queue(s.engine(nil), request("n"))
	clock.Set(-time.Hour)
	tap.freeze(t)
	begun := time.Now()
	h.free()
	w.granted().free()
	took := time.Since(begun)
	if took > 20*time.Second {
		t.Errorf("a frozen process with twenty waiters cost %v, want one grant of 2 s", took)
	}
	t.Logf("a frozen process with twenty waiters cost %v", took)
}
