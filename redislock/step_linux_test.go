package redislock_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
)

// TestClockSetForward: leases end early, and the tokens of the next holders are greater.
func TestClockSetForward(t *testing.T) {
	t.Parallel()
	clock := hosttest.NewClock(t)
	s := scene{TB: t, server: redistest.StartRedisBy(t, clock), looks: &observer{}}
	h := s.hold(s.engine(nil), request("n"))
	clock.Set(2 * long)
	g := s.hold(s.engine(nil), request("n"))
	verdict.Is(t, "Redis: the server's clock is set forward", verdict.Guarded, verdict.OfHolders(nil, h.Token, g.Token))
	s.gone(h.renew())
	g.free()
	clock.Set(-time.Hour)
	back := s.hold(s.engine(nil), request("n"))
	s.refused(s.engine(nil), request("n"))
	verdict.Is(t, "Redis: the server's clock is set back", verdict.Safe)
	if back.Token <= g.Token {
		t.Errorf("token %d after %d", back.Token, g.Token)
	}
}
