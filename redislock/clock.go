package redislock

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// clock is what an engine knows of its server's time, so that a request can say
// until when it may be served: what arrives later has no effect.
type clock struct {
	mu   sync.Mutex  // guards last
	last clockSample // the newest; of a Cluster, whose nodes may differ, the one that is furthest ahead
}

// clockAge is for how long a sample counts.
const clockAge = 10 * time.Second

// note takes another sample. A sure one replaces the last, whatever that says.
func (c *clock) note(s clockSample, sure bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sure || c.last.sent.IsZero() || time.Since(c.last.sent) > clockAge || s.server > c.last.latest(s.sent) {
		c.last = s
	}
}

// after is the latest time, in the server's microseconds, that it can be there
// after so long. It is 0 if nothing is known, or only an old sample: what the clock may
// have gained since would let a late request in.
func (c *clock) after(d time.Duration) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.sent.IsZero() || time.Since(c.last.sent) > clockAge {
		return 0
	}
	return c.last.latest(time.Now()) + d.Microseconds()
}

// ever is after for a request that was sent a while ago, when the sample may have been
// young.
func (c *clock) ever(d time.Duration) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last.latest(time.Now()) + d.Microseconds()
}

// latest is the latest time on the server that a local time can be. It counts a clock
// that runs up to 1 % fast.
func (s clockSample) latest(at time.Time) int64 {
	passed := at.Sub(s.sent)
	return s.server + (passed + passed/100).Microseconds()
}

// clockSample ties the server's clock to ours: what happened at or after server
// happened after sent.
type clockSample struct {
	sent   time.Time
	server int64 // microseconds
}

// begin returns a local time before a grant was made on the server to a request that
// was sent after asked, or the zero time if there is no telling. It counts a clock
// that runs up to 1 % fast.
func (s clockSample) begin(at int64, asked time.Time) time.Time {
	passed := time.Duration(at-s.server) * time.Microsecond
	if at == 0 || s.sent.IsZero() || passed < 0 {
		return time.Time{}
	}
	begin := s.sent.Add(passed / 100 * 99)
	if begin.After(time.Now()) { // the server's clock was stepped
		return time.Time{}
	}
	if begin.Before(asked) { // the sample's answer was long on its way
		return asked
	}
	return begin
}

// askTime makes sure that the server's time is known, if it can be had. Otherwise
// the first request is answered with it, and made again.
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

// until formats when a request that has so long may be served at the latest, and
// returns it as a number, too.
func (c *client) until(ctx context.Context, limit time.Duration) (string, int64) {
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, max(time.Until(end), 0))
	}
	at := c.clock.after(limit)
	return strconv.FormatInt(at, 10), at
}
