package redlock

import (
	"strconv"
	"strings"
	"time"
)

// sample is what the node's clock showed.
type sample struct {
	clock int64     // microseconds
	sent  time.Time // before the question was sent
}

// showed notes what the node's clock showed in an answer to what was sent at a time.
func (n *node) showed(clock int64, sent time.Time) {
	if old := n.clock.Load(); clock > 0 && (old == nil || sent.After(old.sent)) {
		n.clock.Store(&sample{clock, sent})
	}
}

// by returns the moment, by the node's clock in microseconds, after which the node
// need not run a request that is of use for d. It is no earlier than that: what has
// passed since a sample is counted from before its question, and a thousandth is
// added for clock rates. A node whose clock was set forward finds requests late, and
// says what its clock shows.
func (n *node) by(d time.Duration) int64 {
	s := n.clock.Load()
	if s == nil {
		return never
	}
	since := time.Since(s.sent)
	return s.clock + (since + since/1000 + d).Microseconds()
}

// never is later than any clock.
const never = 1 << 52

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// parseTime reads an answer to TIME, in microseconds; 0 if it is none.
func parseTime(text string) int64 {
	seconds, micros, _ := strings.Cut(text, "\n")
	s, err := strconv.ParseInt(strings.TrimSpace(seconds), 10, 64)
	if err != nil {
		return 0
	}
	us, err := strconv.ParseInt(strings.TrimSpace(micros), 10, 64)
	if err != nil {
		return 0
	}
	return s*1_000_000 + us
}
