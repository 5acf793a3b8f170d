package redlock

import (
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/quorum"
)

// terms returns the parameters of an attempt or a renewal.
func (s *nodeSet) terms(mode driver.Mode, ttl time.Duration) quorum.Terms {
	return quorum.Terms{Nodes: len(s.nodes), Need: s.need, TTL: ttl, Drift: drift(ttl), Shared: mode == driver.Shared}
}

// drift is the allowance for clock rates in a lease: a hundredth, plus two milliseconds for the
// resolution of expiry on a node.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// origin is the zero point of the monotonic clock.
var origin = time.Now()

// instant converts a time. The holder adds the time during which the machine was suspended.
func instant(t time.Time) hold.Instant {
	mono := t.Sub(origin)
	return hold.Instant{Mono: mono, Boot: mono, Wall: time.Duration(t.UnixNano())}
}
