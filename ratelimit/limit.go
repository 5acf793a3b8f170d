package ratelimit

import (
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Limit is a rate with a burst.
type Limit struct {
	Events int           // how many in each Per; at least 1
	Per    time.Duration // 0 means one second
	Burst  int           // how many at once after a pause; 0 means Events; 1 spaces all events evenly
}

// PerSecond returns a limit of so many events per second, with a burst of the same size.
func PerSecond(events int) Limit { return Limit{Events: events, Per: time.Second, Burst: events} }

// PerMinute returns a limit of so many events per minute, with a burst of the same size.
func PerMinute(events int) Limit { return Limit{Events: events, Per: time.Minute, Burst: events} }

// PerHour returns a limit of so many events per hour, with a burst of the same size.
func PerHour(events int) Limit { return Limit{Events: events, Per: time.Hour, Burst: events} }

// String returns the limit in the form "100/s, burst 20".
func (l Limit) String() string {
	l = l.withDefaults()
	per := l.Per.String()
	switch l.Per {
	case time.Second:
		per = "s"
	case time.Minute:
		per = "m"
	case time.Hour:
		per = "h"
	}
	return fmt.Sprintf("%d/%s, burst %d", l.Events, per, l.Burst)
}

func (l Limit) withDefaults() Limit {
	if l.Per == 0 {
		l.Per = time.Second
	}
	if l.Burst == 0 {
		l.Burst = l.Events
	}
	return l
}

// pace is a limit in the units of engines.
type pace struct {
	interval time.Duration // between two events, in whole microseconds
	burst    time.Duration // the interval times the burst
}

// pace returns the limit in the units of engines, or an ErrInvalid that says what is wrong with it.
func (l Limit) pace() (pace, error) {
	l = l.withDefaults()
	if l.Events < 1 || l.Per < 0 || l.Burst < 0 {
		return pace{}, fmt.Errorf("%w: %d events in %v with a burst of %d: Events must be at least 1, and Per and Burst must not be negative", driver.ErrInvalid, l.Events, l.Per, l.Burst)
	}
	const longest = driver.MaxRateAhead / 2
	// Round up to a microsecond, without an overflow.
	interval := l.Per / time.Duration(l.Events)
	if interval <= longest && (interval*time.Duration(l.Events) < l.Per || interval%time.Microsecond != 0) {
		interval = interval.Truncate(time.Microsecond) + time.Microsecond
	}
	if lost := float64(interval)*float64(l.Events)/float64(l.Per) - 1; lost > 0.01 {
		return pace{}, fmt.Errorf("%w: the interval of %d events in %v is rounded up to a microsecond, which would lose %.0f %% of them: count in larger units",
			driver.ErrInvalid, l.Events, l.Per, 100*lost)
	}
	if interval > longest/time.Duration(l.Burst) {
		return pace{}, fmt.Errorf("%w: the burst of %v takes more than half a year to become available again: set a smaller burst or a higher rate", driver.ErrInvalid, l)
	}
	return pace{interval, time.Duration(l.Burst) * interval}, nil
}

// take returns the request to the engine for a wish.
func (p pace) take(key string, w wish) driver.RateTake {
	wait := min(w.wait, driver.MaxRateAhead-p.burst).Truncate(time.Microsecond)
	take := driver.RateTake{Key: key, Cost: time.Duration(w.n) * p.interval, Most: p.burst + wait}
	if w.fewer {
		take.Each = p.interval
	}
	return take
}
