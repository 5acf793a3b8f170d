package redisconn

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/internal/retry"
	"github.com/redis/rueidis"
)

// tryAgains is how often a call is sent again to a slot that is moving, over 1.3 s.
const tryAgains = 10

// noDeadline hides a deadline. With one, the client would read the answer on the
// caller's goroutine where it can, deaf to a context that ends early.
type noDeadline struct{ context.Context }

func (noDeadline) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// send sends commands over the shared pipelines, and returns when they are
// answered or ctx ends. The client picks a pipeline at random, and may have to
// dial it first, which no context can interrupt: hence the goroutine.
func (c *rueidisConn) send(ctx context.Context, cmds ...rueidis.Completed) []rueidis.RedisResult {
	f := func() []rueidis.RedisResult { return c.client.DoMulti(noDeadline{ctx}, cmds...) }
	return Promptly(ctx, f, func(err error) []rueidis.RedisResult { return errorResults(len(cmds), err) })
}

func errorResults(n int, err error) []rueidis.RedisResult {
	all := make([]rueidis.RedisResult, n)
	for i := range all {
		all[i] = rueidis.NewErrorResult(err)
	}
	return all
}

// sendOne is send for one command.
func (c *rueidisConn) sendOne(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	return Promptly(ctx, func() rueidis.RedisResult { return c.client.Do(noDeadline{ctx}, cmd) }, rueidis.NewErrorResult)
}

// piped makes one call over the shared pipelines.
func (c *rueidisConn) piped(ctx context.Context, call *Call) Reply {
	c.sharing.Add(1)
	defer c.sharing.Add(-1)
	ctx, cancel := Timed(ctx)
	defer cancel()
	var again attempt
	for {
		result := c.sendOne(ctx, evalCommand(c.client.B(), call, again.source, false))
		if !again.after(ctx, result.Error()) {
			return replyOf(ctx, result)
		}
		retry.Sleep(ctx, again.delay)
	}
}

// batch makes the calls with the given indexes over the shared pipelines. Calls
// that did not run are sent again, and only they.
func (c *rueidisConn) batch(ctx context.Context, calls []Call, todo []int, replies []Reply) {
	ctx, cancel := Timed(ctx)
	defer cancel()
	attempts := make([]attempt, len(calls))
	for len(todo) > 0 {
		cmds := make([]rueidis.Completed, len(todo))
		for k, i := range todo {
			cmds[k] = evalCommand(c.client.B(), &calls[i], attempts[i].source, false)
		}
		var rest []int
		var delay time.Duration
		for k, result := range c.send(ctx, cmds...) {
			i := todo[k]
			if attempts[i].after(ctx, result.Error()) {
				rest = append(rest, i)
				delay = max(delay, attempts[i].delay)
				continue
			}
			replies[i] = replyOf(ctx, result)
		}
		if todo = rest; len(todo) > 0 {
			retry.Sleep(ctx, delay)
		}
	}
}

// attempt is how a call is to be sent.
type attempt struct {
	n      int
	source bool          // the server does not know the SHA1
	delay  time.Duration // before it is sent again
}

// after reports whether a call that ended with err certainly did not run, and may
// be sent again.
func (a *attempt) after(ctx context.Context, err error) bool {
	a.n++
	a.delay = 0
	if err == nil || ctx.Err() != nil || past(ctx) {
		return false
	}
	e, refused := rueidis.IsRedisErr(err)
	switch {
	case refused && e.IsNoScript():
		again := !a.source
		a.source = true
		return again
	case refused && e.IsTryAgain():
		a.delay = min(10*time.Millisecond<<a.n, 200*time.Millisecond)
		end, ok := ctx.Deadline()
		return a.n < tryAgains && (!ok || time.Until(end) > a.delay) // the last word is the server's
	}
	// The context of another caller ended during the dial both waited for.
	return !refused && IsContextError(err) && a.n < tryAgains
}
