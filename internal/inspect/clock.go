package inspect

import (
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Clock is how far a clock is ahead of ours, give or take a doubt.
type Clock struct{ Ahead, Doubt time.Duration }

// ReadClock compares a clock with ours. The answer was made somewhere between question and
// answer, so half the round trip is the doubt. The second reading counts: the first may
// include what it takes to connect. Of two bounds the one that is farther off counts.
func ReadClock(read func() (earliest, latest time.Time, err error)) (c Clock, err error) {
	for range 2 {
		begun := time.Now()
		earliest, latest, err := read()
		if err != nil {
			return c, err
		}
		c.Doubt = time.Since(begun) / 2
		ours := begun.Add(c.Doubt)
		if c.Ahead = latest.Sub(ours); earliest.Sub(ours).Abs() > c.Ahead.Abs() {
			c.Ahead = earliest.Sub(ours)
		}
	}
	return c, nil
}

// clockBound is by how much clocks may differ before people are told.
const clockBound = 500 * time.Millisecond

// Judge says whether a server's clock is likely to be set one day, which endangers tokens.
func (c Clock) Judge() driver.Finding {
	direction := "ahead"
	if c.Ahead < 0 {
		direction = "behind"
	}
	saw := fmt.Sprintf("the server is %s by %v, give or take %v", direction, Short(c.Ahead.Abs()), Short(c.Doubt))
	if c.Ahead.Abs()-c.Doubt <= clockBound {
		return Passed("clock", saw)
	}
	return Found("clock", driver.Warning, saw,
		"one of the two clocks is wrong: if the server's is set forward, leases end early; if it is set back, and the server loses its data, fencing tokens may come again",
		"keep both clocks with NTP, and let them be slewed rather than stepped")
}
