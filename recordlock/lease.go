package recordlock

import (
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/clock"
)

// lease is what a record says about a lease: its length and its last renewal, by three clocks.
type lease struct {
	TTL   int64 `json:"ttl,omitempty"`   // microseconds
	Beat  int64 `json:"beat,omitempty"`  // changes with every renewal
	Store int64 `json:"store,omitempty"` // the store's clock, at the latest, in microseconds since 1970; 0 is unknown
	Wall  int64 `json:"wall,omitempty"`  // the wall clock of the process that renewed
}

// renew starts the lease again at m, which is before the record is written.
func (l *lease) renew(m moment) {
	l.Beat = max(l.Beat+1, m.wall.UnixMicro()) // a process that returns does not repeat its beats
	l.Wall, l.Store = m.wall.UnixMicro(), 0
	if m.known {
		l.Store = m.latest.UnixMicro()
	}
}

// start makes l the lease of a new grant. Its first beat is greater than the token, and so than that of
// an earlier attempt for the same owner, whatever the wall clock shows.
func (l *lease) start(ttl time.Duration, token int64, m moment) {
	*l = lease{TTL: ttl.Microseconds(), Beat: token}
	l.renew(m)
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// moment is a reading of all clocks.
type moment struct {
	now              time.Time // of this process, by its monotonic clock
	wall             time.Time // of this host
	none             bool      // the store has no clock
	known            bool      // whether the bounds of the store's clock are known
	earliest, latest time.Time // the bounds
}

// clockUnknown reports whether no token can be issued. It must not be below the clock by which an
// earlier record of the name has expired. A record can also be too old: a Swap from no record may
// be executed after a later one has expired.
func (m moment) clockUnknown() bool { return !m.known && !m.none }

// age returns how long before now m was, by the clock that shows more: the monotonic one stands still while the
// host is suspended.
func (m moment) age(now time.Time) time.Duration {
	return max(now.Sub(m.now), clock.Wall(now).Sub(m.wall))
}

// errNoClock is why no token is issued.
var errNoClock = fmt.Errorf("%w: the store's clock could not be read", driver.ErrUnavailable)

// sightings are the beats that a process has seen in one record, by the owner of a holder or the id of
// a waiter, and when it saw each first. An owner is a UUID. Of a holder that another program's object
// shows, it is what that program calls it.
type sightings map[string]sighting

type sighting struct {
	beat int64
	at   time.Time
}

// minimum is the key of the minimum hold in sightings. No owner is empty.
const minimum = ""

// note returns the sightings after a state that arrived at a time.
func (s sightings) note(st *state, at time.Time) sightings {
	all := sightings{}
	see := func(id string, l lease) {
		all[id] = sighting{l.Beat, at}
		if old, ok := s[id]; ok && old.beat == l.Beat {
			all[id] = old
		}
	}
	for _, c := range slices.Concat(st.Holders, st.Waiters) {
		see(c.id(), c.lease)
	}
	if st.Closed != nil {
		see(minimum, st.Closed.lease)
	}
	return all
}

// left returns how long a lease still runs, at most, if it is not renewed. It is over when
//
//   - its beat has not changed for its TTL since the answer that showed it arrived. The holder
//     counts from before it sent that beat, so its lease has ended before;
//   - or the TTL has passed since the beat by the store's clock and also by the wall clocks. The
//     lease is safe if one of the two is wrong.
func (s sightings) left(id string, l lease, m moment) time.Duration {
	ttl := micros(l.TTL + 2) // the record has rounded off less than two microseconds
	left := ttl
	if seen, ok := s[id]; ok && seen.beat == l.Beat {
		left -= m.now.Sub(seen.at)
	}
	if m.known && l.Store != 0 {
		byStore := ttl - m.earliest.Sub(time.UnixMicro(l.Store))
		byWall := ttl - m.wall.Sub(time.UnixMicro(l.Wall))
		left = min(left, max(byStore, byWall))
	}
	return left
}
