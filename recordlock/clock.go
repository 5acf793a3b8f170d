package recordlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/clock"
	"github.com/fencelock/fencelock/internal/retry"
)

const (
	clockPeriod = time.Minute     // how often the store's clock is read
	clockRetry  = time.Second     // how often while it is unknown
	clockLimit  = time.Second     // how long a reading may take
	clockWait   = clockLimit / 20 // how long a worker waits for it, which may have leases to renew
	clockLife   = 3 * time.Minute // how long a reading is used
	clockDrift  = 1000            // the bounds widen by 1/clockDrift of the age of the reading
	clockStep   = time.Second     // the step of a local clock from which a reading is not used any more
)

// storeClock computes the store's clock from a recent reading, so that most changes need no request
// for it.
type storeClock struct {
	mu               sync.Mutex // guards the fields below
	tried            time.Time  // when the last reading was begun, or tried
	sent, arrived    time.Time  // local times before and after the last reading; zero if there is none
	wall             time.Time  // the wall clock at sent
	earliest, latest time.Time  // the last reading
	none             bool       // the store has no clock
}

// moment returns the time by all clocks. It reads the store's clock if that is due, and waits for
// that if there is no reading that can be used. Others use the reading too, so it does not end with ctx.
func (e *Engine) moment(ctx context.Context, wait time.Duration) moment {
	m, due := e.clock.at(time.Now())
	if !due {
		return m
	}
	done := make(chan struct{})
	reads := e.tasks.Go(func() { // ends at the time limit
		e.clock.read(e.tasks.Closed, e.records)
		close(done)
	})
	if reads && !m.known {
		retry.Nap(ctx, wait, done)
		m, _ = e.clock.at(time.Now())
	}
	return m
}

// at returns the moment of a local time, and whether the caller must read the store's clock. The
// last reading was made at some time between sent and arrived.
func (c *storeClock) at(now time.Time) (m moment, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m = moment{now: now, wall: clock.Wall(now), none: c.none}
	age := now.Sub(c.sent)
	// After a suspend or a step, the wall clock and the monotonic clock disagree about the age.
	step := m.wall.Sub(c.wall) - age
	m.known = !c.arrived.IsZero() && age < clockLife && step.Abs() < clockStep
	m.earliest = c.earliest.Add(now.Sub(c.arrived) - age/clockDrift)
	m.latest = c.latest.Add(age + age/clockDrift)
	period := clockPeriod
	if m.clockUnknown() {
		period = clockRetry
	}
	if due = now.Sub(c.tried) >= period; due {
		c.tried = now
	}
	return m, due
}

// read reads the store's clock. The last reading stays if that fails.
func (c *storeClock) read(ctx context.Context, records driver.Records) {
	ctx, cancel := context.WithTimeout(ctx, clockLimit)
	defer cancel()
	sent := time.Now()
	earliest, latest, err := records.Clock(ctx)
	arrived := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.none = errors.Is(err, driver.ErrUnsupported); err == nil {
		c.sent, c.wall, c.arrived, c.earliest, c.latest = sent, clock.Wall(sent), arrived, earliest, latest
	}
}
