package fencelock

import (
	"time"

	"github.com/fencelock/fencelock/internal/hold"
)

// origin is what the monotonic readings of instants count from.
var origin = time.Now()

// instant reads the three clocks of a hold.
func instant() hold.Instant { return instantAt(time.Now(), suspended()) }

// instantAt makes an instant of a time that an engine stamped. asleep is the
// time the machine had spent suspended by then, or earlier: less is safe, since
// it makes the stamp older.
func instantAt(t time.Time, asleep time.Duration) hold.Instant {
	mono := t.Sub(origin)
	return hold.Instant{Mono: mono, Boot: mono + asleep, Wall: time.Duration(t.UnixNano())}
}
