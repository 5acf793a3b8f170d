package inspect

import (
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Clock is how far a clock is ahead of the local one, and the uncertainty (Doubt) of that.
type Clock struct{ Ahead, Doubt time.Duration }

// ReadClock compares a clock with the local one. The clock was read at some time during the call,
// so the uncertainty is half the call's duration. It calls read twice and uses the second result,
// because the first call may include connecting. Of the two bounds it uses the one that differs
// more. If they are exactly a second apart, the clock shows whole seconds, and half a second is
// uncertain, too.
func ReadClock(read func() (earliest, latest time.Time, err error)) (c Clock, err error) {
	for range 2 {
		begun := time.Now()
		earliest, latest, err := read()
		if err != nil {
			return c, err
		}
		c.Doubt = time.Since(begun) / 2
		ours := begun.Add(c.Doubt)
		if latest.Sub(earliest) == time.Second {
			c.Doubt += time.Second / 2
			earliest, latest = earliest.Add(time.Second/2), earliest.Add(time.Second/2)
		}
		if c.Ahead = latest.Sub(ours); earliest.Sub(ours).Abs() > c.Ahead.Abs() {
			c.Ahead = earliest.Sub(ours)
		}
	}
	return c, nil
}

// clockBound is the difference between two clocks above which there is a warning.
const clockBound = 500 * time.Millisecond

// Judge returns a finding about a server's clock. A clock that is wrong is likely to be corrected
// one day, which endangers tokens.
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
		"one of the two clocks is wrong: if the server's is set forward, leases end early; if it is set back, and the server loses its data, fencing tokens may be issued twice",
		"synchronize both clocks with NTP, and slew them instead of stepping them")
}
