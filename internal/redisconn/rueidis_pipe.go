package redisconn

import (
	"context"
	"time"

	"github.com/redis/rueidis"
)

// noDeadline hides the deadline of a context. With a deadline the client would, if possible, read
// the answer on the caller's goroutine, where an earlier end of the context could not interrupt it.
type noDeadline struct{ context.Context }

func (noDeadline) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// send sends commands over the shared pipelines and returns after the answers, or when ctx ends.
// The client picks a pipeline at random and may have to dial it, which no context can interrupt, so
// this runs on another goroutine.
func (c *rueidisConn) send(ctx context.Context, cmds ...rueidis.Completed) []rueidis.RedisResult {
	f := func() []rueidis.RedisResult {
		if len(cmds) == 1 {
			return []rueidis.RedisResult{c.client.Do(noDeadline{ctx}, cmds[0])}
		}
		return c.client.DoMulti(noDeadline{ctx}, cmds...)
	}
	return Promptly(ctx, f, func(err error) []rueidis.RedisResult { return errorResults(len(cmds), err) })
}

func errorResults(n int, err error) []rueidis.RedisResult {
	all := make([]rueidis.RedisResult, n)
	for i := range all {
		all[i] = rueidis.NewErrorResult(err)
	}
	return all
}

// piped makes one call over the shared pipelines.
func (c *rueidisConn) piped(ctx context.Context, call *Call) Reply {
	c.sharing.Add(1)
	defer c.sharing.Add(-1)
	replies := make([]Reply, 1)
	c.batch(ctx, []Call{*call}, []int{0}, replies)
	return replies[0]
}

// batch makes the calls with the given indexes over the shared pipelines.
func (c *rueidisConn) batch(ctx context.Context, calls []Call, todo []int, replies []Reply) {
	ctx, cancel := Timed(ctx)
	defer cancel()
	RetryUnsent(ctx, todo, replies, func(todo []int, source []bool) []Reply {
		cmds := make([]rueidis.Completed, len(todo))
		for k, i := range todo {
			cmds[k] = evalCommand(c.client.B(), &calls[i], source[i], false)
		}
		said := make([]Reply, len(todo))
		for k, result := range c.send(ctx, cmds...) {
			if said[k] = replyOf(ctx, result); IsContextError(said[k].Err) && ctx.Err() == nil && !past(ctx) {
				said[k].Err = unsent{said[k].Err} // another caller's context ended during a dial that both waited for
			}
		}
		return said
	})
}
