package goredisconn

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/deadline"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// callLimit bounds a WAIT whose context has no deadline.
const callLimit = 10 * time.Second

// evalCommand returns the command for one run of a script: by its SHA-1, or by its source for a
// server that was restarted or promoted and does not have the script.
func evalCommand(ctx context.Context, call *redisconn.Call, source bool) once {
	args := make([]any, 0, 3+len(call.Keys)+len(call.Args))
	if source {
		args = append(args, "eval", call.Script.Source(), len(call.Keys))
	} else {
		args = append(args, "evalsha", call.Script.SHA1(), len(call.Keys))
	}
	for _, key := range call.Keys {
		args = append(args, key)
	}
	for _, arg := range call.Args {
		args = append(args, arg)
	}
	cmd := once{redis.NewCmd(ctx, args...)}
	// A ClusterClient asks any node for COMMAND to find this out, and all its calls wait for the
	// answer. That node may be silent.
	cmd.SetStepCount(1)
	return cmd
}

// replyOf returns the result of a script.
func replyOf(ctx context.Context, cmd once) redisconn.Reply {
	text, err := cmd.Text()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return redisconn.Reply{Text: text, Err: errorOf(ctx, err)}
}

// Eval implements redisconn.Conn.
func (c *conn) Eval(ctx context.Context, calls []redisconn.Call) []redisconn.Reply {
	failed := func(err error) []redisconn.Reply {
		return redisconn.Failures(len(calls), err)
	}
	if err := c.check(ctx); err != nil {
		return failed(c.Unreached(err))
	}
	var replies []redisconn.Reply
	if redisconn.IsFresh(ctx) {
		timed, cancel := redisconn.Timed(ctx)
		defer cancel()
		replies = redisconn.Promptly(timed, func() []redisconn.Reply { return c.fresh(timed, calls) }, failed)
	} else if at, ok := c.punctual(ctx); ok {
		// The client calls Done, which needs a timer: use one for all deadlines, and stop it after
		// the call.
		timed := deadline.New(deadline.Beneath(ctx), at)
		defer timed.Stop()
		replies = c.eval(timed, calls)
	} else {
		timed, cancel := redisconn.Timed(ctx)
		defer cancel()
		replies = redisconn.Promptly(timed, func() []redisconn.Reply { return c.eval(timed, calls) }, failed)
	}
	for i := range replies {
		replies[i].Err = calls[i].Named(c.Unreached(replies[i].Err))
	}
	return replies
}

// punctual reports whether the client itself ends a call at the deadline of ctx, and returns that
// deadline. That is the case if the application has set ContextTimeoutEnabled and ctx can end in no
// other way.
func (c *conn) punctual(ctx context.Context) (at time.Time, ok bool) {
	client, ok := c.client.(*redis.Client)
	if !ok || !client.Options().ContextTimeoutEnabled || deadline.Beneath(ctx).Done() != nil {
		return at, false
	}
	return ctx.Deadline()
}

// fresh makes calls for keys of one server on a new connection.
func (c *conn) fresh(ctx context.Context, calls []redisconn.Call) []redisconn.Reply {
	node, err := c.master(ctx, calls[0].Keys)
	if err != nil {
		return redisconn.Failures(len(calls), errorOf(ctx, err))
	}
	alone := renewed(node)
	defer func() { _ = alone.Close() }()
	return (&conn{client: alone}).eval(ctx, calls)
}

// renewed returns a client for one new connection to the same server. The caller closes it.
func renewed(node *redis.Client) *redis.Client {
	o := *node.Options()
	o.PoolSize, o.MinIdleConns = 1, 0
	// Both clients would write to a shared one.
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(&o)
}

// eval makes calls. A call that waits for replicas needs its own connection, because WAIT counts
// the writes of its connection.
func (c *conn) eval(ctx context.Context, calls []redisconn.Call) []redisconn.Reply {
	replies := make([]redisconn.Reply, len(calls))
	var todo []int
	for i := range calls {
		if calls[i].Replicas > 0 {
			replies[i] = c.replicated(ctx, &calls[i])
		} else {
			todo = append(todo, i)
		}
	}
	redisconn.RetryUnsent(ctx, todo, replies, func(todo []int, source []bool) []redisconn.Reply {
		cmds := make([]once, len(todo))
		for k, i := range todo {
			cmds[k] = evalCommand(ctx, &calls[i], source[i])
		}
		c.send(ctx, cmds)
		said := make([]redisconn.Reply, len(todo))
		for k, cmd := range cmds {
			said[k] = replyOf(ctx, cmd)
		}
		return said
	})
	return replies
}

// send sends commands, several of them in one pipeline. The errors are in the commands: if the
// server refuses one, the others are not affected.
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

// replicated makes one call that waits for replicas, on one connection. There the client does not
// follow redirections, so replicated follows one itself.
func (c *conn) replicated(ctx context.Context, call *redisconn.Call) redisconn.Reply {
	node, err := c.master(ctx, call.Keys)
	if err != nil {
		return redisconn.Reply{Err: errorOf(ctx, err)}
	}
	r := onNode(ctx, node, call, false)
	refused, _ := errors.AsType[redisconn.ServerError](r.Err)
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
func onNode(ctx context.Context, node *redis.Client, call *redisconn.Call, ask bool) redisconn.Reply {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(callLimit)
	}
	// The client's own timeouts may be shorter than the wait, which the deadline bounds.
	sticky := node.WithTimeout(time.Until(deadline) + time.Second).Conn()
	defer func() { _ = sticky.Close() }()
	if ask {
		// ASKING applies to one command only, so the source is sent at once.
		_ = sticky.Process(ctx, once{redis.NewCmd(ctx, "asking")})
	}
	replies := make([]redisconn.Reply, 1)
	redisconn.RetryUnsent(ctx, []int{0}, replies, func(_ []int, source []bool) []redisconn.Reply {
		cmd := evalCommand(ctx, call, ask || source[0])
		_ = sticky.Process(ctx, cmd)
		return []redisconn.Reply{replyOf(ctx, cmd)}
	})
	r := replies[0]
	if r.Err != nil {
		return r
	}
	// Slightly less than ctx allows, so that the answer arrives in time.
	limit := max(1, time.Until(deadline).Milliseconds()*9/10)
	acknowledged := once{redis.NewCmd(ctx, "wait", strconv.Itoa(call.Replicas), strconv.FormatInt(limit, 10))}
	r.Err = errorOf(ctx, sticky.Process(ctx, acknowledged))
	r.Replicas, _ = acknowledged.Int()
	return r
}
