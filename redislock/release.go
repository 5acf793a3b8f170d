package redislock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// Release ends an acquisition and hands the name to the next waiter. Transient errors are retried
// for up to RetryTimeout, and then in the background until the lease expires. After an error
// Release may be called again.
func (e *Engine) Release(ctx context.Context, l driver.Lease) error {
	lock, err := e.lockKey(l.Name)
	if err != nil {
		return err
	}
	// Forget the hold after the answer, so that messages about it are still understood until then.
	r := e.insistFree(ctx, l, e.releaseCall(lock, l.Owner, l.Token, e.queue.lateOf(l.Owner)))
	e.queue.forget(l.Owner)
	_, failure, _ := strings.Cut(r.Text, " ")
	e.unpublished(lock, failure)
	return e.standing(l, r)
}

// unpublished logs, once, that a hand-over could not be published. failure is the end of the script's
// answer: the server's error, if there is one.
func (c *client) unpublished(lock, failure string) {
	if failure == "" || failure == moving {
		return
	}
	c.mute.Do(func() {
		c.cfg.Logger.Warn("a hand-over was not published; waiters get the lock up to a second late", "key", lock, "error", failure, "fix", c.grant())
	})
}

// insistFree repeats a release until the server answers. Each attempt has its own time limit,
// because the connection may be dead and the next attempt may reach another server. After an
// unanswered attempt on a connection of the pool, the next one uses a new connection, and "gone"
// means that the lock has been released. Whatever remains to be done continues in the background.
func (e *Engine) insistFree(ctx context.Context, l driver.Lease, release redisconn.Call) redisconn.Reply {
	limited := redisconn.WithDeadline(ctx, e.cfg.RetryTimeout)
	limit, unknown := attemptLimit(l.TTL), false
	var why error
	attempt := limited
	for pause := newBackoff(); ; pause.Wait(limited) {
		r := e.free(redisconn.WithDeadline(attempt, limit), l, release)
		if r.Err == nil {
			if strings.HasSuffix(r.Text, " "+moving) { // the lock could not be handed over yet
				e.freeLater(l, release, withdrawLimit)
			}
			if unknown && strings.HasPrefix(r.Text, "gone") {
				r.Text = "ok"
			}
			return r
		}
		_, refused := redisconn.Refused(r.Err)
		unknown = unknown || !refused
		attempt = next(attempt, limited, r.Err)
		why = cause(why, r.Err)
		if !passing(r.Err) || e.closed.Err() != nil || limited.Err() != nil {
			e.freeLater(l, release, l.TTL)
			return redisconn.Reply{Err: why}
		}
	}
}

// freeLater continues a release in the background for at most limit. Otherwise the name
// would stay locked until the lease expires.
func (e *Engine) freeLater(l driver.Lease, release redisconn.Call, limit time.Duration) {
	if !e.queue.beginFreeing(l.Owner) {
		return
	}
	task := func() { // ends when the server has answered, after limit, or soon after Close
		defer e.queue.endFreeing(l.Owner)
		e.withdrawLoop(release, l.TTL, limit)
	}
	if !e.tasks.Go(task) {
		e.queue.endFreeing(l.Owner)
	}
}

// free makes one attempt of a release. Releases of exclusive locks without an outstanding acquire
// attempt may share a script.
func (e *Engine) free(ctx context.Context, l driver.Lease, release redisconn.Call) redisconn.Reply {
	single := func() redisconn.Reply { return e.conn.Eval(ctx, []redisconn.Call{release})[0] }
	if redisconn.IsFresh(ctx) {
		return single()
	}
	args := release.Args[2:]
	if alone := e.batcher.tryStart(); alone || len(args) > 3 || l.Mode != driver.Exclusive || !e.batcher.canBatch() {
		if alone {
			defer e.batcher.finishCall()
		}
		return single()
	}
	limit := attemptLimit(l.TTL)
	v := e.batcher.send(redisconn.WithDeadline(ctx, limit), &pendingOp{letter: 'r', lock: release.Keys[0], limit: limit, args: args[:2]})
	switch v.letter {
	case 'o':
		return redisconn.Reply{Text: "ok"}
	case 's', refused: // not decided in the batch
		return single()
	}
	return redisconn.Reply{Err: v.err}
}

// releaseCall makes a call of the release script. late is the server time until which an attempt of
// the acquire may still be served, which the script then prevents; 0 if there is none.
func (c *client) releaseCall(lock, owner string, token, late int64) redisconn.Call {
	which := strconv.FormatInt(time.Now().UnixNano(), 36) // identifies this release among those of the owner
	args := []string{owner, strconv.FormatInt(token, 10), which}
	if late > 0 {
		args = append(args, strconv.FormatInt(late, 10))
	}
	return c.call(releaseScript, lock, args...)
}

// giveBack releases an unused grant without blocking.
func (c *client) giveBack(release redisconn.Call) {
	c.tasks.Go(func() { c.withdrawLoop(release, 0, withdrawLimit) }) // ends when the server has answered, after withdrawLimit, or soon after Close
}

// Break ends every acquisition of name and its minimum hold, notifies the holders that can be
// reached, and grants the lock to the next waiter. A lock of another program is deleted.
func (e *Engine) Break(ctx context.Context, name, reason string) (int64, error) {
	return e.breaks(ctx, name, reason)
}

// BreakOwner is like Break, but ends only the acquisition of owner; see [driver.OwnerBreaker].
func (e *Engine) BreakOwner(ctx context.Context, name, owner, reason string) (int64, error) {
	return e.breaks(ctx, name, reason, owner)
}

func (e *Engine) breaks(ctx context.Context, name string, args ...string) (int64, error) {
	if err := driver.CheckName(name); err != nil {
		return 0, err
	}
	lock, err := e.lockKey(name)
	if err != nil {
		return 0, err
	}
	text, err := e.eval(ctx, e.call(breakScript, lock, args...))
	if err != nil {
		return 0, unavailable(err)
	}
	in := redisfmt.Words{Rest: text}
	switch in.Next() {
	case "gone":
		return 0, fmt.Errorf("%w: %q", driver.ErrNotHeld, name)
	case "broken":
		if token := in.Int(); !in.Bad {
			e.unpublished(lock, in.Rest)
			return token, nil
		}
	}
	return 0, malformed(text)
}
