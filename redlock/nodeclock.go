package redlock

import (
	"sync/atomic"
	"time"
)

// nodeClock is what a node's clock showed last. Requests carry until when they are of
// use, by that clock, so that one which lies in a socket for long does nothing.
type nodeClock struct{ last atomic.Pointer[sample] }

// sample is what the node's clock showed.
type sample struct {
	clock int64     // microseconds
	sent  time.Time // before the question was sent
}

// showed notes what the node's clock showed in an answer to what was sent at a time.
// Answers may overtake one another: the one whose question is the latest counts.
func (c *nodeClock) showed(clock int64, sent time.Time) {
	if old := c.last.Load(); clock > 0 && (old == nil || sent.After(old.sent)) {
		c.last.Store(&sample{clock, sent})
	}
}

// sampleAge is for how long a sample is good. What is added for clock rates grows with
// the age, and a node that runs a request long after its time gives a lock to nobody.
const sampleAge = time.Minute

// fresh reports whether the clock was seen lately.
func (c *nodeClock) fresh() bool {
	s := c.last.Load()
	return s != nil && time.Since(s.sent) < sampleAge
}

// by returns the moment, by the node's clock in microseconds, after which the node
// need not run a request that is of use for d. It is no earlier than that: what has
// passed since a sample is counted from before its question, and a thousandth is
// added for clock rates. A node whose clock was set forward finds requests late, and
// says what its clock shows.
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
