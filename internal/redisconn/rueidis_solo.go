package redisconn

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/fencelock/fencelock/internal/deadline"
	"github.com/redis/rueidis"
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

// timedReply is one call on a connection of its own.
type timedReply struct {
	Reply
	began, answered time.Time
}

// healthy reports whether the connection still serves.
func (e timedReply) healthy() bool {
	_, refused := Refused(e.Err)
	return e.Err == nil || refused
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

// callAsync makes one call on a connection of its own and on a goroutine of its own: a
// dial cannot be interrupted.
func (c *rueidisConn) callAsync(ctx context.Context, call *Call) timedReply {
	ctx, cancel := Timed(WithDeadline(ctx, callLimit))
	defer cancel()
	return Promptly(ctx,
		func() timedReply {
			conn, release := c.client.Dedicate()
			return c.exec(ctx, conn, release, context.AfterFunc(ctx, conn.Close), call)
		},
		func(err error) timedReply { return timedReply{Reply: Reply{Err: err}} })
}

// callInline makes one call on a connection that lies ready, on the caller's goroutine.
// The deadline is the socket's, so that no timer is needed.
func (c *rueidisConn) callInline(ctx context.Context, call *Call) timedReply {
	ctx = WithDeadline(ctx, callLimit)
	at, _ := ctx.Deadline()
	conn, release := c.client.Dedicate()
	c.solo.watchdog.begin(conn, at)
	caller := deadline.Beneath(ctx)
	if caller.Done() == nil {
		return c.exec(ctx, conn, release, c.solo.watchdog.end, call)
	}
	stop := context.AfterFunc(caller, conn.Close)
	return c.exec(ctx, conn, release, func() bool {
		sound := c.solo.watchdog.end()
		return stop() && sound
	}, call)
}

// exec makes one call on conn, which is closed under it when ctx ends: that alone
// ends a read. Then stop reports false, and the connection is not to be released.
func (c *rueidisConn) exec(ctx context.Context, conn rueidis.DedicatedClient, release func(), stop func() bool, call *Call) timedReply {
	e := timedReply{began: time.Now()}
	var err error
	e.Reply, err = run(ctx, conn, call)
	e.answered = time.Now()
	switch {
	case !stop(): // Close runs, and gives the connection back as well
	case e.healthy():
		release()
	default:
		conn.Close()
	}
	if err != nil && c.Cluster() {
		e.Reply = c.redirected(ctx, call, err, e.Reply)
	}
	return e
}

// run makes one call on one connection. The error is the client's own.
func run(ctx context.Context, conn rueidis.DedicatedClient, call *Call) (Reply, error) {
	result := conn.Do(ctx, evalCommand(conn.B(), call, false, true))
	if isNoScript(result.Error()) {
		result = conn.Do(ctx, evalCommand(conn.B(), call, true, true))
	}
	return waited(ctx, conn, call, replyOf(ctx, result)), result.Error()
}

func isNoScript(err error) bool {
	e, ok := rueidis.IsRedisErr(err)
	return ok && e.IsNoScript()
}

// waited waits for replicas to acknowledge what the connection has written, if the
// call asks for it: for a little less than ctx allows, so that the answer comes in
// time.
func waited(ctx context.Context, conn rueidis.DedicatedClient, call *Call, r Reply) Reply {
	if r.Err != nil || call.Replicas == 0 {
		return r
	}
	deadline, _ := ctx.Deadline()
	limit := max(1, time.Until(deadline).Milliseconds()*9/10)
	cmd := conn.B().Arbitrary("WAIT", strconv.Itoa(call.Replicas), strconv.FormatInt(limit, 10)).Blocking()
	acknowledged, err := conn.Do(ctx, cmd).AsInt64()
	r.Replicas, r.Err = int(acknowledged), errorOf(ctx, err)
	return r
}

// redirected follows MOVED and ASK, which connections of their own do not. Other
// refusals stand.
func (c *rueidisConn) redirected(ctx context.Context, call *Call, err error, r Reply) Reply {
	e, ok := rueidis.IsRedisErr(err)
	if !ok {
		return r
	}
	addr, moved := e.IsMoved()
	asked, ask := e.IsAsk()
	switch {
	case !moved && !ask && !e.IsTryAgain():
		return r
	case call.Replicas == 0:
		return c.piped(ctx, call)
	case ask:
		addr = asked
	}
	node := c.client.Nodes()[addr]
	if node == nil {
		return r
	}
	conn, _ := node.Dedicate()
	defer conn.Close()
	if ask {
		// One ASKING covers one command: the source goes along at once.
		conn.Do(ctx, conn.B().Arbitrary("ASKING").Build())
		result := conn.Do(ctx, evalCommand(conn.B(), call, true, true))
		return waited(ctx, conn, call, replyOf(ctx, result))
	}
	r, _ = run(ctx, conn, call)
	return r
}

// A watchdog closes a connection whose call is overdue, up to a second late. It
// backs the socket's deadline, which connections that the client has begun to
// pipeline do without, and costs a timer each second of use, not each call.
type watchdog struct {
	mu       sync.Mutex // guards all below
	armed    bool
	conn     rueidis.DedicatedClient // of the call under way
	deadline time.Time
}

func (w *watchdog) begin(conn rueidis.DedicatedClient, deadline time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn, w.deadline = conn, deadline
	if !w.armed {
		w.armed = true
		time.AfterFunc(time.Second, w.check)
	}
}

// check goes on once a second while there are calls.
func (w *watchdog) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.armed = w.conn != nil; !w.armed {
		return
	}
	if time.Now().After(w.deadline) {
		go w.conn.Close() // ends within a second
		w.conn, w.armed = nil, false
		return
	}
	time.AfterFunc(time.Second, w.check)
}

// end reports whether the connection was left open.
func (w *watchdog) end() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	open := w.conn != nil
	w.conn = nil
	return open
}
