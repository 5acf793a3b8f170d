package redlock

import (
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/hold"
	"github.com/fencelock/fencelock/internal/quorum"
)

// terms are those of a take or a renewal.
func (s *nodeSet) terms(mode driver.Mode, ttl time.Duration) quorum.Terms {
	return quorum.Terms{Nodes: len(s.nodes), Need: s.need, TTL: ttl, Drift: drift(ttl), Shared: mode == driver.Shared}
}

// drift is what clocks may eat of a lease: a hundredth, and two milliseconds for
// the resolution of expiry on a node.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// origin is what the monotonic clock is counted from.
var origin = time.Now()

// instant reads the clocks. The machine's suspended time is added by the holder.
func instant(t time.Time) hold.Instant {
	mono := t.Sub(origin)
	return hold.Instant{Mono: mono, Boot: mono, Wall: time.Duration(t.UnixNano())}
}
