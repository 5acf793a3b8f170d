package redislock

import (
	"context"
	"sync"
	"time"
)

// A soloConn lets one call at a time use a connection of its own. There is one for
// each Conn: who finds it taken, or others in the pipelines, is not alone and
// shares a pipeline.
type soloConn struct {
	mu     sync.Mutex // held during a call; guards slow, closed
	slow   int        // how many calls in a row had a slow release
	closed time.Time  // until when the solo connection is not used

	watchdog watchdog
}

const (
	// slowReleases of which each takes a network round trip show that the client
	// pipelines these connections too, as with AlwaysPipelining: the solo connection only
	// costs then, and stays closed for a while.
	slowReleases = 8
	soloClosed   = time.Minute
)

// tryLock takes the solo connection if it is free and worth it.
func (l *soloConn) tryLock() bool {
	if !l.mu.TryLock() {
		return false
	}
	if time.Now().Before(l.closed) {
		l.mu.Unlock()
		return false
	}
	return true
}

// unlock gives the solo connection back after a call.
func (l *soloConn) unlock(e timedReply, freed time.Time) {
	defer l.mu.Unlock()
	if !e.healthy() || freed.Sub(e.answered) < e.answered.Sub(e.began)/4 {
		l.slow = 0
	} else if l.slow++; l.slow >= slowReleases {
		l.slow, l.closed = 0, freed.Add(soloClosed)
	}
}

// single makes one call: on the solo connection if it is free, and apart if the call needs
// its connection for a WAIT as well.
func (c *rueidisConn) single(ctx context.Context, call *Call) Reply {
	if call.Replicas > 0 {
		return c.callAsync(ctx, call).Reply
	}
	if c.sharing.Load() > 0 {
		return c.piped(ctx, call)
	}
	if !c.solo.tryLock() {
		return c.piped(ctx, call)
	}
	var e timedReply
	if c.soloHealthy.fresh(time.Now()) {
		e = c.callInline(ctx, call)
	} else {
		e = c.callAsync(ctx, call)
	}
	if e.healthy() {
		c.soloHealthy.note(e.answered)
	} else {
		c.markUnhealthy()
	}
	c.solo.unlock(e, time.Now())
	return e.Reply
}
