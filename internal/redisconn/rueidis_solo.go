package redisconn

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/deadline"
	"github.com/redis/rueidis"
)

const (
	// soloAfter is the number of single calls, each within a second of the one before, after which
	// a dedicated connection is opened.
	soloAfter = 4
	// soloIdle is how long the connection is kept without a call.
	soloIdle = 5 * time.Second
	// soloPause is the pause after a failed dial.
	soloPause = time.Minute
	// soloCheck is the interval of check while there is a connection.
	soloCheck = time.Second
)

// soloConn lets one call at a time use a dedicated connection. While it is in use, while pipelined
// calls are in progress, or while there is no connection, calls are pipelined.
//
// The deadline of a call is set on the socket, so it needs no timer. But if the client has started
// to pipeline on the connection, the socket has no deadline. Therefore check closes the connection
// of an overdue call, up to a second late.
type soloConn struct {
	call sync.Mutex // held during a call

	mu       sync.Mutex              // guards the fields below
	conn     rueidis.DedicatedClient // nil if there is none
	deadline time.Time               // of the current call; zero if there is none
	last     time.Time               // when the last call began
	missed   int                     // how many calls found no connection
	opening  bool
	checking bool      // whether check is scheduled
	until    time.Time // no dial before this time
}

// begin returns the connection for a call with a deadline, or nil if there is none. If wanted is
// true, the caller must open one.
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

// drop closes the connection. Later calls do not get it.
func (s *soloConn) drop(conn rueidis.DedicatedClient) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == conn {
		s.conn = nil
	}
	go conn.Close() // ends within a second
}

// open dials a connection. It is bounded by the client's dial timeout and callLimit. A server that
// refuses the PING is reachable.
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

// check runs once per second while there is a connection, and closes it if its call is overdue or
// it is idle. Closing the client does not close it.
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

// single makes one call: on the solo connection if there is one and no other call is in progress.
// With Sentinel or a Cluster it uses the pipelines, since only the client knows which server to
// use.
func (c *rueidisConn) single(ctx context.Context, call *Call) Reply {
	if call.Replicas > 0 {
		return c.replicated(ctx, call)
	}
	if IsFresh(ctx) {
		return c.fresh(ctx, call)
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
			go c.solo.open(c.client) // ends with the dial, or after callLimit
		}
		return c.piped(ctx, call)
	}
	defer c.solo.call.Unlock()
	return c.alone(ctx, conn, call)
}

// fresh makes one call on a new connection.
func (c *rueidisConn) fresh(ctx context.Context, call *Call) Reply {
	return onNew(WithDeadline(ctx, callLimit), c.client, func(ctx context.Context, conn rueidis.DedicatedClient) Reply {
		return replyOf(ctx, run(ctx, conn, call, false))
	}, func(err error) Reply { return Reply{Err: err} })
}

// onNew returns the result of call on a new connection, or that of failed as soon as ctx ends, also while
// the client dials.
func onNew[T any](ctx context.Context, client rueidis.Client, call func(context.Context, rueidis.DedicatedClient) T, failed func(error) T) T {
	ctx, cancel := Timed(ctx)
	defer cancel()
	return Promptly(ctx, func() T {
		conn, _ := client.Dedicate()       // dials
		defer func() { go conn.Close() }() // ends within a second
		return call(ctx, conn)
	}, failed)
}

// alone makes one call on the solo connection. If ctx ends, it closes the connection, because
// nothing else interrupts the read. After an error the connection is not used again, even if the
// server merely refused the command: it may have become a replica.
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

// run makes one call on one connection: by the SHA-1 of the script, or by its source if source is
// set or the server does not have the script.
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
