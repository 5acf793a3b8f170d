package goredis

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/retry"
	"github.com/fencelock/fencelock/redislock"
	"github.com/redis/go-redis/v9"
)

const (
	// callLimit bounds a WAIT whose context has no deadline.
	callLimit = 10 * time.Second

	// tryAgains is how often a call is sent again to a slot that is moving, over
	// 1.3 s.
	tryAgains = 10
)

// A once is a command that the client does not send again after it may have
// reached the server.
type once struct{ *redis.Cmd }

// NoRetry tells the client so.
func (once) NoRetry() bool { return true }

// evalCommand builds one run of a script: by its SHA1, or by its source.
func evalCommand(ctx context.Context, call *redislock.Call, source bool) once {
	args := make([]any, 0, 3+len(call.Keys)+len(call.Args))
	if source {
		args = append(args, "eval", call.Script.Source, len(call.Keys))
	} else {
		args = append(args, "evalsha", call.Script.SHA1, len(call.Keys))
	}
	for _, key := range call.Keys {
		args = append(args, key)
	}
	for _, arg := range call.Args {
		args = append(args, arg)
	}
	return once{redis.NewCmd(ctx, args...)}
}

// replyOf reads what a script returned.
func replyOf(ctx context.Context, cmd once) redislock.Reply {
	text, err := cmd.Text()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return redislock.Reply{Text: text, Err: errorOf(ctx, err)}
}

// Eval runs scripts as redislock.Conn says.
func (c *conn) Eval(ctx context.Context, calls []redislock.Call) []redislock.Reply {
	failed := func(err error) []redislock.Reply {
		return slices.Repeat([]redislock.Reply{{Err: err}}, len(calls))
	}
	if err := c.check(ctx); err != nil {
		return failed(c.Unreached(err))
	}
	ctx, cancel := timed(ctx)
	defer cancel()
	replies := promptly(ctx, func() []redislock.Reply { return c.eval(ctx, calls) }, failed)
	for i := range replies {
		replies[i].Err = c.Unreached(replies[i].Err)
	}
	return replies
}

// timed returns ctx with a Done that knows its deadline: that of the engine's own
// contexts does not, to spare a timer.
func timed(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if _, untimed := ctx.(interface{ Untimed() }); ok && untimed {
		return context.WithDeadline(ctx, deadline)
	}
	return ctx, func() {}
}

func (c *conn) eval(ctx context.Context, calls []redislock.Call) []redislock.Reply {
	replies := make([]redislock.Reply, len(calls))
	attempts := make([]attempt, len(calls))
	var todo []int
	for i := range calls {
		if calls[i].Replicas > 0 {
			replies[i] = c.replicated(ctx, &calls[i])
		} else {
			todo = append(todo, i)
		}
	}
	for len(todo) > 0 {
		cmds := make([]once, len(todo))
		for k, i := range todo {
			cmds[k] = evalCommand(ctx, &calls[i], attempts[i].source)
		}
		c.send(ctx, cmds)
		var rest []int
		var delay time.Duration
		for k, i := range todo {
			if attempts[i].after(ctx, cmds[k].Err()) {
				rest = append(rest, i)
				delay = max(delay, attempts[i].delay)
			} else {
				replies[i] = replyOf(ctx, cmds[k])
			}
		}
		if todo = rest; len(todo) > 0 {
			retry.Sleep(ctx, delay)
		}
	}
	return replies
}

// send sends commands, several in one pipeline. The errors are in the commands.
func (c *conn) send(ctx context.Context, cmds []once) {
	if len(cmds) == 1 {
		_ = c.client.Process(ctx, cmds[0])
		return
	}
	pipe := c.client.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd)
	}
	_, _ = pipe.Exec(ctx)
}

// attempt is how a call is to be sent.
type attempt struct {
	n      int
	source bool          // the server does not know the SHA1
	delay  time.Duration // before it is sent again
}

// after reports whether a call that ended with err did not run, and may be sent
// again.
func (a *attempt) after(ctx context.Context, err error) bool {
	a.n++
	a.delay = 0
	reply, refused := errors.AsType[redis.Error](err)
	if !refused || ctx.Err() != nil {
		return false
	}
	switch text := reply.Error(); {
	case strings.HasPrefix(text, "NOSCRIPT"):
		again := !a.source
		a.source = true
		return again
	case strings.HasPrefix(text, "TRYAGAIN"):
		a.delay = min(10*time.Millisecond<<a.n, 200*time.Millisecond)
		end, ok := ctx.Deadline()
		return a.n < tryAgains && (!ok || time.Until(end) > a.delay) // the last word is the server's
	}
	return false
}

// replicated makes one call that waits for replicas, on one connection.
func (c *conn) replicated(ctx context.Context, call *redislock.Call) redislock.Reply {
	node, err := c.master(ctx, call.Keys)
	if err != nil {
		return redislock.Reply{Err: errorOf(ctx, err)}
	}
	r := onNode(ctx, node, call, false)
	refused, _ := errors.AsType[redislock.ServerError](r.Err)
	word, place, _ := strings.Cut(refused.Text, " ")
	if word != "MOVED" && word != "ASK" {
		return r
	}
	_, addr, _ := strings.Cut(place, " ")
	nodes, err := c.masters(ctx)
	if err != nil {
		return r
	}
	for _, node := range nodes {
		if node.Options().Addr == addr {
			return onNode(ctx, node, call, word == "ASK")
		}
	}
	return r
}

// onNode makes one call on one connection of a server.
func onNode(ctx context.Context, node *redis.Client, call *redislock.Call, ask bool) redislock.Reply {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(callLimit)
	}
	sticky := node.WithTimeout(time.Until(deadline) + time.Second).Conn()
	defer func() { _ = sticky.Close() }()
	if ask {
		// One ASKING covers one command: the source goes along at once.
		_ = sticky.Process(ctx, once{redis.NewCmd(ctx, "asking")})
	}
	cmd := evalCommand(ctx, call, ask)
	_ = sticky.Process(ctx, cmd)
	if again := (attempt{source: ask}); again.after(ctx, cmd.Err()) {
		cmd = evalCommand(ctx, call, again.source)
		_ = sticky.Process(ctx, cmd)
	}
	r := replyOf(ctx, cmd)
	if r.Err != nil {
		return r
	}
	// A little less than ctx allows, so that the answer comes in time.
	limit := max(1, time.Until(deadline).Milliseconds()*9/10)
	acknowledged := once{redis.NewCmd(ctx, "wait", strconv.Itoa(call.Replicas), strconv.FormatInt(limit, 10))}
	r.Err = errorOf(ctx, sticky.Process(ctx, acknowledged))
	r.Replicas, _ = acknowledged.Int()
	return r
}
