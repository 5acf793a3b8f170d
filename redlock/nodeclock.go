package redlock

import (
	"sync/atomic"
	"time"
)

// nodeClock tracks a node's clock. Requests carry the time until which they may be served by this
// clock, so that a request that is delayed in a socket has no effect.
type nodeClock struct{ last atomic.Pointer[sample] }

// sample is one reading of the node's clock.
type sample struct {
	clock int64     // microseconds
	sent  time.Time // local time before the request was sent
}

// showed records a reading of the clock in the reply to a request sent at a time. Replies may
// overtake one another: the one whose request was sent last counts.
func (c *nodeClock) showed(clock int64, sent time.Time) {
	if old := c.last.Load(); clock > 0 && (old == nil || sent.After(old.sent)) {
		c.last.Store(&sample{clock, sent})
	}
}

// sampleAge is how long a sample may be used. The allowance for clock rates grows with its age, and
// a request that the node serves long after its time gives the lock to nobody.
const sampleAge = time.Minute

// fresh reports whether there is a recent sample.
func (c *nodeClock) fresh() bool {
	s := c.last.Load()
	return s != nil && time.Since(s.sent) < sampleAge
}

// by returns the node's time, in microseconds, until which a request with the time limit d may be
// served. It is not too early: the time since the sample counts from before its request was sent,
// plus a thousandth for clock rates. A node whose clock was set forward finds requests late, and
// its reply has the new time.
func (c *nodeClock) by(d time.Duration) int64 {
	s := c.last.Load()
	if s == nil {
		return never
	}
	since := time.Since(s.sent)
	return s.clock + (since + since/1000 + d).Microseconds()
}

// never is later than any clock.
const never = 1 << 52
