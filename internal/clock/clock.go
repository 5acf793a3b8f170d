// Package clock reads the three clocks by which a hold ends: the monotonic clock, the one that also
// counts while the machine is suspended, and the wall clock.
package clock

import (
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/internal/hold"
)

// origin is what the monotonic readings of instants count from.
var origin = time.Now()

// sleep knows how long this machine has been suspended.
var sleep = sleepClock{read: suspended}

// Mono returns the monotonic reading of an instant of now, without the other two.
func Mono() time.Duration { return time.Since(origin) }

// Now reads the three clocks of a hold.
func Now() hold.Instant { return Of(time.Now()) }

// Of is Now with two of the clocks read already, by time.Now.
func Of(t time.Time) hold.Instant {
	now := At(t, 0)
	now.Boot += sleep.at(now)
	return now
}

// At makes an instant of a time that an engine stamped. asleep is the
// time the machine had spent suspended by then, or earlier: less is safe, since
// it makes the stamp older.
func At(t time.Time, asleep time.Duration) hold.Instant {
	mono := t.Sub(origin)
	return hold.Instant{Mono: mono, Boot: mono + asleep, Wall: time.Duration(t.UnixNano())}
}

const (
	keepFor  = 100 * time.Millisecond // how long a reading of the suspended time serves
	keepSkew = time.Millisecond       // as long as the wall clock moved no further from the monotonic one
)

// sleepClock tells how long the machine has been suspended without a system
// call each time. A suspension shows in time.Now, which costs none: the kernel
// adds the same time to the wall clock and to the boot-time clock on resume,
// and nothing to the monotonic one, so the wall clock gets ahead of it. The
// reading is taken again whenever that happens, and after keepFor in any case.
//
// What escapes for keepFor is a suspension of which somebody stepped the wall
// clock back to the millisecond, right after the resume.
type sleepClock struct {
	read func() time.Duration
	last atomic.Pointer[sleepReading]
}

type sleepReading struct {
	mono, skew time.Duration // when it was taken, and how far the wall clock was ahead then
	asleep     time.Duration
}

// at returns the time spent suspended by now, whose monotonic and wall clocks
// the caller has just read.
func (c *sleepClock) at(now hold.Instant) time.Duration {
	skew := now.Wall - now.Mono
	if r := c.last.Load(); r != nil && now.Mono >= r.mono && now.Mono-r.mono < keepFor && (skew-r.skew).Abs() < keepSkew {
		return r.asleep
	}
	r := &sleepReading{mono: now.Mono, skew: skew, asleep: c.read()}
	c.last.Store(r)
	return r.asleep
}
