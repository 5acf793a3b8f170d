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

// rueidisConn is a Conn on a rueidis client, which stays the caller's: it is not
// closed here.
//
// A call that is alone uses a connection that is kept for it, and reads the answer on the
// caller's goroutine, which takes half as long as a pipeline's two extra switches of
// goroutine. Calls that overlap are pipelined.
//
// No connection of a DedicatedClient goes back to the client's pool: the client would send
// UNSUBSCRIBE on some of them, and panics in a goroutine of its own if the server answers
// that with an error such as BUSY. They are closed instead.
type rueidisConn struct {
	client  rueidis.Client
	solo    soloConn
	sharing atomic.Int32 // calls under way in the pipelines
}

// Rueidis returns the Conn on a rueidis client, which stays the caller's to close.
func Rueidis(client rueidis.Client) Conn { return &rueidisConn{client: client} }

// Cluster reports whether the client talks to a Redis Cluster.
func (c *rueidisConn) Cluster() bool { return c.client.Mode() == rueidis.ClientModeCluster }

// Eval runs scripts as [Conn] says.
func (c *rueidisConn) Eval(ctx context.Context, calls []Call) []Reply {
	replies := make([]Reply, len(calls))
	defer func() {
		for i := range replies {
			replies[i].Err = c.Unreached(replies[i].Err)
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

// evalCommand builds one run of a script, by its SHA1 or by its source, for a
// pipeline or for a connection of its own. The latter counts as blocking, or
// closing the connection would let it finish first.
func evalCommand(b rueidis.Builder, call *Call, source, apart bool) rueidis.Completed {
	name, script := "EVALSHA", call.Script.SHA1
	if source {
		name, script = "EVAL", call.Script.Source
	}
	cmd := b.Arbitrary(name, script, strconv.Itoa(len(call.Keys))).Keys(call.Keys...).Args(call.Args...)
	if apart {
		return cmd.Blocking()
	}
	return cmd.Build().ToPipe()
}

// replyOf reads what a script returned.
func replyOf(ctx context.Context, result rueidis.RedisResult) Reply {
	text, err := result.ToString()
	if err == nil || rueidis.IsRedisNil(err) {
		return Reply{Text: text}
	}
	return Reply{Err: errorOf(ctx, err)}
}

// errorOf makes an error of the client's one of ours.
func errorOf(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := rueidis.IsRedisErr(err); ok {
		return ServerError{Text: e.Error()}
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

// past reports whether ctx's deadline has come, which a connection may notice
// before the context does.
func past(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}
