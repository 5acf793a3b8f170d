package redisconn

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// replicated makes one call that waits for replicas. WAIT counts the writes of its own connection,
// so both commands are sent together on one connection of the client's pool.
func (c *rueidisConn) replicated(ctx context.Context, call *Call) Reply {
	ctx, cancel := Timed(WithDeadline(ctx, callLimit))
	defer cancel()
	if c.Cluster() {
		return Promptly(ctx, func() Reply { return c.onSlot(ctx, call) }, func(err error) Reply { return Reply{Err: err} })
	}
	r, err := c.together(ctx, call, false)
	if isNoScript(err) {
		r, _ = c.together(ctx, call, true)
	}
	return r
}

// together sends a script and its WAIT. The returned error is the client's.
func (c *rueidisConn) together(ctx context.Context, call *Call, source bool) (Reply, error) {
	b := c.client.B()
	cmds := []rueidis.Completed{evalCommand(b, call, source, true), waitCommand(ctx, b, call)}
	results := Promptly(ctx,
		func() []rueidis.RedisResult { return c.client.DoMulti(ctx, cmds...) },
		func(err error) []rueidis.RedisResult { return errorResults(len(cmds), err) })
	r := replyOf(ctx, results[0])
	if r.Err == nil {
		r = acknowledged(ctx, r, results[1])
	}
	return r, results[0].Error()
}

// waitCommand returns a WAIT with a timeout slightly shorter than ctx allows, so that its answer
// arrives in time.
func waitCommand(ctx context.Context, b rueidis.Builder, call *Call) rueidis.Completed {
	deadline, _ := ctx.Deadline()
	limit := max(1, time.Until(deadline).Milliseconds()*9/10)
	return b.Arbitrary("WAIT", strconv.Itoa(call.Replicas), strconv.FormatInt(limit, 10)).Blocking()
}

// acknowledged adds the answer of a WAIT to a reply.
func acknowledged(ctx context.Context, r Reply, result rueidis.RedisResult) Reply {
	n, err := result.AsInt64()
	r.Replicas, r.Err = int(n), errorOf(ctx, err)
	return r
}

// onSlot is replicated for a Cluster. The client cannot send WAIT after a command with a key, so
// onSlot uses a dedicated connection and follows one redirection itself.
func (c *rueidisConn) onSlot(ctx context.Context, call *Call) Reply {
	r, err := onConn(ctx, c.client, call, false)
	e, refused := rueidis.IsRedisErr(err)
	if !refused {
		return r
	}
	addr, moved := e.IsMoved()
	if asked, ask := e.IsAsk(); ask {
		addr = asked
	} else if !moved {
		return r
	}
	if node := c.client.Nodes()[addr]; node != nil {
		r, _ = onConn(ctx, node, call, !moved)
	}
	return r
}

// onConn makes one call on a new connection. The returned error is the client's. ASKING applies to
// one command only, so with ask the source is sent at once.
func onConn(ctx context.Context, client rueidis.Client, call *Call, ask bool) (Reply, error) {
	conn, _ := client.Dedicate()
	defer context.AfterFunc(ctx, conn.Close)() // interrupts a read
	defer conn.Close()
	if ask {
		conn.Do(ctx, conn.B().Arbitrary("ASKING").Build())
	}
	result := run(ctx, conn, call, ask)
	r := replyOf(ctx, result)
	if r.Err == nil {
		r = acknowledged(ctx, r, conn.Do(ctx, waitCommand(ctx, conn.B(), call)))
	}
	return r, result.Error()
}
