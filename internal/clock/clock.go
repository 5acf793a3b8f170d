// Package clock reads the three clocks that decide when a hold ends: the monotonic clock, the
// boot-time clock, which includes suspended time, and the wall clock.
package clock

import (
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/internal/hold"
)

// origin is the zero of monotonic readings.
var origin = time.Now()

// sleep returns how long this machine was suspended.
var sleep = sleepClock{read: suspended}

// Mono returns the current monotonic reading of an Instant.
func Mono() time.Duration { return time.Since(origin) }

// Now reads the three clocks.
func Now() hold.Instant { return Of(time.Now()) }

// Of is Now for a time that was just read with time.Now.
func Of(t time.Time) hold.Instant {
	now := At(t, 0)
	now.Boot += sleep.at(now)
	return now
}

// At returns the Instant of a time that an engine recorded. asleep is how long the machine had been
// suspended by then. A smaller value is safe, since it makes the Instant older.
func At(t time.Time, asleep time.Duration) hold.Instant {
	mono := t.Sub(origin)
	return hold.Instant{Mono: mono, Boot: mono + asleep, Wall: time.Duration(Wall(t).UnixNano())}
}

// stepped is how far Step has stepped the wall clock, in nanoseconds.
var stepped atomic.Int64

// Step makes the wall clock of this process differ from the machine's, as far as locks read it. The
// command chaos steps the clocks of its workers with it.
func Step(ahead time.Duration) { stepped.Store(int64(ahead)) }

// Wall returns the wall clock at a time that was just read with time.Now.
func Wall(t time.Time) time.Time { return t.Round(0).Add(time.Duration(stepped.Load())) }

const (
	keepFor  = 100 * time.Millisecond // how long a reading of the suspended time may be reused
	keepSkew = time.Millisecond       // and by how much the wall clock may move against the monotonic clock
)

// sleepClock returns how long the machine was suspended, mostly without a system call. On resume
// the kernel adds the suspended time to the wall clock and the boot-time clock, but not to the
// monotonic clock. So a suspend shows as a jump of the wall clock in time.Now, which needs no
// system call. sleepClock reads the suspended time again after such a jump, and after keepFor in
// any case.
//
// It misses a suspend, for at most keepFor, only if the wall clock is set back by the same time, to
// the millisecond, right after the resume.
type sleepClock struct {
	read func() time.Duration
	last atomic.Pointer[sleepReading]
}

type sleepReading struct {
	mono, skew time.Duration // when it was read, and the wall clock minus the monotonic clock at that time
	asleep     time.Duration
}

// at returns how long the machine was suspended by now. The caller has just read the monotonic and
// the wall clock of now.
func (c *sleepClock) at(now hold.Instant) time.Duration {
	skew := now.Wall - now.Mono
	if r := c.last.Load(); r != nil && now.Mono >= r.mono && now.Mono-r.mono < keepFor && (skew-r.skew).Abs() < keepSkew {
		return r.asleep
	}
	r := &sleepReading{mono: now.Mono, skew: skew, asleep: c.read()}
	c.last.Store(r)
	return r.asleep
}
