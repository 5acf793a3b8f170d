package recordlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

const (
	clockPeriod = time.Minute      // how often the store's clock is read
	clockRetry  = time.Second      // how soon after a failure
	clockNone   = 10 * time.Minute // how soon after the store has answered that it has no clock
	clockLimit  = time.Second      // how long a reading may take
	clockLife   = 3 * time.Minute  // how long a reading is used
	clockDrift  = 1000             // the bounds widen by 1/clockDrift of the age of the reading
	clockStep   = time.Second      // the step of a local clock from which a reading is not used any more
)

// storeClock computes the store's clock from a recent reading, so that most changes need no request
// for it.
type storeClock struct {
	records driver.Records
	start   func(func()) bool // runs a function in a goroutine

	mu               sync.Mutex // guards the fields below
	next             time.Time  // when to read again
	sent, arrived    time.Time  // local times before and after the last reading; zero if there is none
	earliest, latest time.Time  // the last reading
	none             bool       // the store has no clock
}

// moment returns the time by all clocks. It reads the store's clock if that is due: in the
// background, unless there is no reading that can be used.
func (c *storeClock) moment(ctx context.Context) moment {
	switch due, usable := c.due(time.Now()); {
	case due && !usable:
		c.read(ctx)
	case due:
		c.start(func() { c.read(ctx) }) // ends at the time limit
	}
	return c.at(time.Now())
}

// due reports whether the caller must read the store's clock, and whether the last reading can still
// be used.
func (c *storeClock) due(now time.Time) (due, usable bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	usable = c.usable(now)
	if !c.arrived.IsZero() && !usable {
		c.arrived, c.next = time.Time{}, now
	}
	if now.Before(c.next) {
		return false, usable
	}
	c.next = now.Add(clockPeriod)
	return true, usable
}

// read reads the store's clock. The last reading stays if that fails.
func (c *storeClock) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, clockLimit)
	defer cancel()
	sent := time.Now()
	earliest, latest, err := c.records.Clock(ctx)
	arrived := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.sent, c.arrived, c.earliest, c.latest = sent, arrived, earliest, latest
	case errors.Is(err, driver.ErrUnsupported):
		c.none, c.next = true, arrived.Add(clockNone)
	default:
		c.next = arrived.Add(clockRetry)
	}
}

// usable reports whether the last reading is recent. After a suspend or a step, the wall clock and
// the monotonic clock of this host disagree about its age. The caller holds mu.
func (c *storeClock) usable(now time.Time) bool {
	age := now.Sub(c.sent)
	step := now.Round(0).Sub(c.sent.Round(0)) - age
	return !c.arrived.IsZero() && age < clockLife && step.Abs() < clockStep
}

// at returns the moment of a local time. The store's clock was read at some time between sent and
// arrived.
func (c *storeClock) at(now time.Time) moment {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := moment{now: now, none: c.none}
	if c.usable(now) {
		drift := now.Sub(c.sent) / clockDrift
		m.known = true
		m.earliest = c.earliest.Add(now.Sub(c.arrived) - drift)
		m.latest = c.latest.Add(now.Sub(c.sent) + drift)
	}
	return m
}
