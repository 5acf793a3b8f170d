package redislock

import (
	"context"
	"sync"
	"time"
)

// A lane is the right to make a call on a connection of its own. There is one for
// each Conn: who finds it taken, or others in the pipelines, is not alone and
// shares a pipeline.
type lane struct {
	mu     sync.Mutex // held during a call; guards slow, closed
	slow   int        // how many calls in a row had a slow release
	closed time.Time  // until when the lane is not used

	watchdog watchdog
}

const (
	// slowReleases of which each takes a network round trip show that the client
	// pipelines these connections too, as with AlwaysPipelining: the lane only
	// costs then, and stays closed for a while.
	slowReleases = 8
	laneClosed   = time.Minute
)

// enter takes the lane if it is free and worth it.
func (l *lane) enter() bool {
	if !l.mu.TryLock() {
		return false
	}
	if time.Now().Before(l.closed) {
		l.mu.Unlock()
		return false
	}
	return true
}

// leave gives the lane back after a call.
func (l *lane) leave(e exchange, freed time.Time) {
	defer l.mu.Unlock()
	if !e.sound() || freed.Sub(e.answered) < e.answered.Sub(e.began)/4 {
		l.slow = 0
	} else if l.slow++; l.slow >= slowReleases {
		l.slow, l.closed = 0, freed.Add(laneClosed)
	}
}

// single makes one call: on the lane if it is free, and apart if the call needs
// its connection for a WAIT as well.
func (c *rueidisConn) single(ctx context.Context, call *Call) Reply {
	if call.Replicas > 0 {
		return c.away(ctx, call).Reply
	}
	if c.sharing.Load() > 0 {
		return c.piped(ctx, call)
	}
	if !c.lane.enter() {
		return c.piped(ctx, call)
	}
	var e exchange
	if c.parked.fresh(time.Now()) {
		e = c.here(ctx, call)
	} else {
		e = c.away(ctx, call)
	}
	if e.sound() {
		c.parked.note(e.answered)
	} else {
		c.doubt()
	}
	c.lane.leave(e, time.Now())
	return e.Reply
}
