package redislock

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// clock estimates the server's time, so that a request can carry a server time until which it may
// be served. A request that arrives later has no effect.
type clock struct {
	mu   sync.Mutex  // guards last
	last clockSample // the newest; on a Cluster, whose nodes' clocks may differ, the one furthest ahead
}

// clockAge is how long a sample may be used.
const clockAge = 10 * time.Second

// note records a sample. One that is sure replaces the last one in any case.
func (c *clock) note(s clockSample, sure bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sure || c.last.sent.IsZero() || time.Since(c.last.sent) > clockAge || s.server > c.last.latest(s.sent) {
		c.last = s
	}
}

// after returns the latest server time, in microseconds, that it can be after d. It returns 0 if
// there is no sample or only an old one: the uncertainty of an old sample would accept late
// requests.
func (c *clock) after(d time.Duration) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.sent.IsZero() || time.Since(c.last.sent) > clockAge {
		return 0
	}
	return c.last.latest(time.Now()) + d.Microseconds()
}

// ever is after for a request that has been sent already, when the sample may still have been
// fresh.
func (c *clock) ever(d time.Duration) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last.latest(time.Now()) + d.Microseconds()
}

// latest returns the latest server time that a local time can correspond to. It allows for a clock
// that runs up to 1 % fast.
func (s clockSample) latest(at time.Time) int64 {
	passed := at.Sub(s.sent)
	return s.server + (passed + passed/100).Microseconds()
}

// clockSample relates the server's clock to the local one: an event at or after server happened
// after sent.
type clockSample struct {
	sent   time.Time
	server int64 // microseconds
}

// askTime fetches the server's time if it is unknown. If that fails, the first request is answered
// "late" with the time, and is then repeated.
func (c *client) askTime(ctx context.Context) {
	if c.clock.after(0) > 0 {
		return
	}
	sent := time.Now()
	answers, err := c.conn.Each(redisconn.WithDeadline(ctx, attemptLimit(0)), "TIME")
	if err != nil {
		return
	}
	for _, a := range answers {
		if at, ok := redisfmt.ParseTime(a.Text); ok && a.Err == nil {
			c.clock.note(clockSample{sent: sent, server: at.UnixMicro()}, false)
		}
	}
}

// until returns the latest server time at which a request with this time limit may be served, as
// text and as a number.
func (c *client) until(ctx context.Context, limit time.Duration) (string, int64) {
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, max(time.Until(end), 0))
	}
	at := c.clock.after(limit)
	return strconv.FormatInt(at, 10), at
}

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
