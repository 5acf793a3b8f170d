package redisconn

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

const (
	// callLimit bounds a call whose context has no deadline.
	callLimit = 10 * time.Second
)

// rueidisConn is a Conn on a rueidis client. It does not close the client.
//
// A single call uses a dedicated connection and reads the answer on the caller's goroutine. A
// pipeline needs two more goroutine switches and takes twice as long. Concurrent calls are
// pipelined.
//
// Connections of a DedicatedClient are closed and not returned to the client's pool: the client
// would send UNSUBSCRIBE on some of them, and panic in one of its goroutines if the server answers
// that with an error such as BUSY.
type rueidisConn struct {
	client  rueidis.Client
	solo    soloConn
	sharing atomic.Int32 // calls in progress in the pipelines
}

// Rueidis returns a Conn on a rueidis client. The caller closes the client.
func Rueidis(client rueidis.Client) Conn { return &rueidisConn{client: client} }

// Cluster implements Conn.
func (c *rueidisConn) Cluster() bool { return c.client.Mode() == rueidis.ClientModeCluster }

// Eval implements Conn.
func (c *rueidisConn) Eval(ctx context.Context, calls []Call) []Reply {
	replies := make([]Reply, len(calls))
	defer func() {
		for i := range replies {
			replies[i].Err = calls[i].Named(c.Unreached(replies[i].Err))
		}
	}()
	if err := ctx.Err(); err != nil {
		for i := range replies {
			replies[i].Err = err
		}
		return replies
	}
	if len(calls) == 1 {
		replies[0] = c.single(ctx, &calls[0])
		return replies
	}
	var many []int
	for i := range calls {
		if calls[i].Replicas > 0 {
			replies[i] = c.single(ctx, &calls[i])
		} else {
			many = append(many, i)
		}
	}
	c.batch(ctx, calls, many, replies)
	return replies
}

// evalCommand returns the command for one run of a script, by its SHA-1 or its source. apart is for
// a dedicated connection: the command is then marked as blocking, because otherwise closing the
// connection would wait for it.
func evalCommand(b rueidis.Builder, call *Call, source, apart bool) rueidis.Completed {
	name, script := "EVALSHA", call.Script.SHA1()
	if source {
		name, script = "EVAL", call.Script.Source()
	}
	cmd := b.Arbitrary(name, script, strconv.Itoa(len(call.Keys))).Keys(call.Keys...).Args(call.Args...)
	if apart {
		return cmd.Blocking()
	}
	return cmd.Build().ToPipe()
}

// replyOf returns the result of a script.
func replyOf(ctx context.Context, result rueidis.RedisResult) Reply {
	text, err := result.ToString()
	if err == nil || rueidis.IsRedisNil(err) {
		return Reply{Text: text}
	}
	return Reply{Err: errorOf(ctx, err)}
}

// errorOf converts an error of the client.
func errorOf(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := rueidis.IsRedisErr(err); ok {
		return ErrorReply(e.Error())
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if IsContextError(err) && past(ctx) {
		return context.DeadlineExceeded
	}
	return err
}

// Unreached adds the addresses to an error that is not a server's.
func (c *rueidisConn) Unreached(err error) error {
	if err == nil {
		return nil
	}
	return Unreached(err, slices.Sorted(maps.Keys(c.client.Nodes()))...)
}

// past reports whether ctx's deadline has passed. A connection may time out shortly before the
// context ends.
func past(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}
