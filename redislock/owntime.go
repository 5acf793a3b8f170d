package redislock

import (
	"strconv"
	"sync"
	"time"
)

// ownTime numbers the local times of a client, so that a server can return one with a grant.
type ownTime struct {
	zero time.Time // before the first of them

	mu   sync.Mutex // guards last
	last time.Time  // since then, the wall clock has run with the monotonic one
}

// wallSkew is by how much the wall clock may move against the monotonic one. It moves by more when it
// is set, and when the machine was suspended.
const wallSkew = 5 * time.Millisecond

// stamp returns the number of a time that was just read, in microseconds.
func (o *ownTime) stamp(at time.Time) string {
	o.steady(at)
	return strconv.FormatInt(at.Sub(o.zero).Microseconds(), 10)
}

// at returns the time of a number, or the zero time if that is unknown: for 0, and for a time from
// before a jump of the wall clock, when its distance from the present time is unknown.
func (o *ownTime) at(stamp int64) time.Time {
	now := time.Now()
	since := o.steady(now)
	age := now.Sub(o.zero) - time.Duration(stamp)*time.Microsecond
	if at := now.Add(-age); stamp > 0 && age >= 0 && !at.Before(since) {
		return at
	}
	return time.Time{}
}

// steady returns since when the wall clock has run with the monotonic one.
func (o *ownTime) steady(now time.Time) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if skew := now.Round(0).Sub(o.last.Round(0)) - now.Sub(o.last); skew.Abs() > wallSkew {
		o.last = now
	}
	return o.last
}
