package ratelimit

import (
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Limit is how often something may happen.
type Limit struct {
	Events int           // at least 1, in each Per
	Per    time.Duration // 0 means a second
	Burst  int           // how many at once, after a pause; 0 means Events, and 1 spaces all of them
}

// PerSecond is a limit of so many events a second, all of them at once if need be.
func PerSecond(events int) Limit { return Limit{Events: events, Per: time.Second, Burst: events} }

// PerMinute is a limit of so many events a minute, all of them at once if need be.
func PerMinute(events int) Limit { return Limit{Events: events, Per: time.Minute, Burst: events} }

// PerHour is a limit of so many events an hour, all of them at once if need be.
func PerHour(events int) Limit { return Limit{Events: events, Per: time.Hour, Burst: events} }

// String returns the limit as in "100/s, burst 20".
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

// pace is a limit as engines count it.
type pace struct {
	interval time.Duration // between two events, in whole microseconds
	burst    time.Duration // what a burst takes
}

// pace returns what engines count, or an ErrInvalid that says what is wrong with the limit.
func (l Limit) pace() (pace, error) {
	l = l.withDefaults()
	if l.Events < 1 || l.Per < 0 || l.Burst < 0 {
		return pace{}, fmt.Errorf("%w: a rate of %d events in %v with a burst of %d", driver.ErrInvalid, l.Events, l.Per, l.Burst)
	}
	const longest = driver.MaxRateAhead / 2
	// It is rounded up to a microsecond, without an overflow.
	interval := l.Per / time.Duration(l.Events)
	if interval <= longest && (interval*time.Duration(l.Events) < l.Per || interval%time.Microsecond != 0) {
		interval = interval.Truncate(time.Microsecond) + time.Microsecond
	}
	if lost := float64(interval)*float64(l.Events)/float64(l.Per) - 1; lost > 0.01 {
		return pace{}, fmt.Errorf("%w: %d events in %v are not a whole number of microseconds apart, and %.0f %% of them would be lost; count them in larger units",
			driver.ErrInvalid, l.Events, l.Per, 100*lost)
	}
	if interval > longest/time.Duration(l.Burst) {
		return pace{}, fmt.Errorf("%w: %v take more than half a year to come back", driver.ErrInvalid, l)
	}
	return pace{interval, time.Duration(l.Burst) * interval}, nil
}

// take asks the engine for what is wished of a key.
func (p pace) take(key string, w wish) driver.RateTake {
	wait := min(w.wait, driver.MaxRateAhead-p.burst).Truncate(time.Microsecond)
	take := driver.RateTake{Key: key, Cost: time.Duration(w.n) * p.interval, Most: p.burst + wait}
	if w.fewer {
		take.Each = p.interval
	}
	return take
}
