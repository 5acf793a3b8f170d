package redisconn

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/deadline"
	"github.com/redis/rueidis"
)

const (
	// soloAfter calls that were alone, none a second after the one before, show that a
	// connection for them is worth it.
	soloAfter = 4
	// soloIdle is for how long the connection is kept without a call.
	soloIdle = 5 * time.Second
	// soloPause is how long after a failed dial the next one is.
	soloPause = time.Minute
	// soloCheck is how often the connection is looked at while there is one.
	soloCheck = time.Second
)

// A soloConn keeps a connection that one call at a time may use. Who finds it taken, or
// others in the pipelines, is not alone and shares a pipeline, and so does every call
// while there is no connection.
//
// A call's deadline is the socket's, so that no timer is needed. Connections that the
// client has begun to pipeline do without it: hence check, which closes the connection of
// a call that is overdue, up to a second late.
type soloConn struct {
	call sync.Mutex // held during a call

	mu       sync.Mutex              // guards all below
	conn     rueidis.DedicatedClient // nil if there is none
	deadline time.Time               // of the call under way; zero without
	last     time.Time               // when a call last began
	missed   int                     // how many calls found no connection
	opening  bool
	checking bool      // check will run
	until    time.Time // no dial before then
}

// begin returns the connection for a call with a deadline, or nil if there is none; wanted
// says that the caller opens one now.
func (s *soloConn) begin(at time.Time) (conn rueidis.DedicatedClient, wanted bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.last, s.deadline = now, at
		return s.conn, false
	}
	if now.Sub(s.last) > time.Second {
		s.missed = 0
	}
	s.last = now
	s.missed++
	if s.opening || s.missed < soloAfter || now.Before(s.until) {
		return nil, false
	}
	s.missed, s.opening = 0, true
	return nil, true
}

// end ends a call.
func (s *soloConn) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = time.Time{}
}

// drop closes the connection, and nobody gets it any more.
func (s *soloConn) drop(conn rueidis.DedicatedClient) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == conn {
		s.conn = nil
	}
	go conn.Close() // ends within a second
}

// open dials a connection. It ends with the dial, whose limit is the client's, or with
// callLimit. A server that refuses a PING is there.
func (s *soloConn) open(client rueidis.Client) {
	conn, _ := client.Dedicate()
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	err := conn.Do(ctx, conn.B().Arbitrary("PING").Blocking()).NonRedisError()
	s.mu.Lock()
	s.opening = false
	if err == nil {
		s.conn, s.last = conn, time.Now()
		if !s.checking {
			s.checking = true
			time.AfterFunc(soloCheck, s.check)
		}
	} else {
		s.until = time.Now().Add(soloPause)
	}
	s.mu.Unlock()
	if err != nil {
		conn.Close()
	}
}

// check goes on once a second while there is a connection, and closes one that is overdue
// or idle: nobody else does when the client is closed.
func (s *soloConn) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, busy := time.Now(), !s.deadline.IsZero()
	if s.conn != nil && (busy && now.After(s.deadline) || !busy && now.Sub(s.last) > soloIdle) {
		go s.conn.Close() // ends within a second
		s.conn = nil
	}
	if s.checking = s.conn != nil; s.checking {
		time.AfterFunc(soloCheck, s.check)
	}
}

// single makes one call: on the solo connection if there is one and nobody else has a call
// under way. Behind Sentinel, or on a Cluster, the client alone knows which server to ask.
func (c *rueidisConn) single(ctx context.Context, call *Call) Reply {
	if call.Replicas > 0 {
		return c.replicated(ctx, call)
	}
	if c.sharing.Load() > 0 || c.client.Mode() != rueidis.ClientModeStandalone || !c.solo.call.TryLock() {
		return c.piped(ctx, call)
	}
	ctx = WithDeadline(ctx, callLimit)
	at, _ := ctx.Deadline()
	conn, wanted := c.solo.begin(at)
	if conn == nil {
		c.solo.call.Unlock()
		if wanted {
			go c.solo.open(c.client) // ends with the dial, or with callLimit
		}
		return c.piped(ctx, call)
	}
	defer c.solo.call.Unlock()
	return c.alone(ctx, conn, call)
}

// alone makes one call on the solo connection, which is closed under it when ctx ends: that
// alone ends a read. A connection that has failed is not used again, nor is one whose
// server refuses: it may have become a replica.
func (c *rueidisConn) alone(ctx context.Context, conn rueidis.DedicatedClient, call *Call) Reply {
	stop := func() bool { return true }
	if caller := deadline.Beneath(ctx); caller.Done() != nil {
		stop = context.AfterFunc(caller, func() { c.solo.drop(conn) })
	}
	r := replyOf(ctx, run(ctx, conn, call, false))
	if c.solo.end(); !stop() || r.Err != nil {
		c.solo.drop(conn)
	}
	return r
}

// run makes one call on one connection, by its source or, if the server knows it, by its SHA1.
func run(ctx context.Context, conn rueidis.DedicatedClient, call *Call, source bool) rueidis.RedisResult {
	result := conn.Do(ctx, evalCommand(conn.B(), call, source, true))
	if isNoScript(result.Error()) {
		result = conn.Do(ctx, evalCommand(conn.B(), call, true, true))
	}
	return result
}

func isNoScript(err error) bool {
	e, ok := rueidis.IsRedisErr(err)
	return ok && e.IsNoScript()
}
