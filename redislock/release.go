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

// Release ends an acquisition and hands the name to the next waiter. Passing errors are
// tried again, for no longer than RetryTimeout, and after that in the background until
// the lease is over. It may be called again if it failed.
func (e *Engine) Release(ctx context.Context, l driver.Lease) error {
	lock, err := e.lockKey(l.Name)
	if err != nil {
		return err
	}
	// The hold is forgotten after the answer: until then a message about it is understood.
	r := e.insistFree(ctx, l, e.releaseCall(lock, l.Owner, l.Token, e.queue.lateOf(l.Owner)))
	e.queue.forget(l.Owner)
	return e.standing(l, r)
}

// insistFree makes tries of a release until the server answers. Each has a limit of its own:
// the connection may be silent, and the next try may reach another server. After a try
// without an answer, an acquisition that is gone is one that was released. What is left to
// do then goes on in the background.
func (e *Engine) insistFree(ctx context.Context, l driver.Lease, release redisconn.Call) redisconn.Reply {
	limited := redisconn.WithDeadline(ctx, e.cfg.RetryTimeout)
	limit, unknown := attemptLimit(l.TTL), false
	var why error
	for pause := newBackoff(); ; pause.Wait(limited) {
		r := e.free(redisconn.WithDeadline(limited, limit), l, release)
		if r.Err == nil {
			if strings.HasSuffix(r.Text, moving) { // nobody could be let in yet
				e.freeLater(l, release, withdrawLimit)
			}
			if unknown && strings.HasPrefix(r.Text, "gone") {
				r.Text = "ok"
			}
			return r
		}
		_, refused := redisconn.Refused(r.Err)
		unknown = unknown || !refused
		why = cause(why, r.Err)
		if !passing(r.Err) || e.closed.Err() != nil || limited.Err() != nil {
			e.freeLater(l, release, l.TTL)
			return redisconn.Reply{Err: why}
		}
	}
}

// freeLater goes on with a release in the background, for so long at most: the name would
// stay closed until its lease is over.
func (e *Engine) freeLater(l driver.Lease, release redisconn.Call, most time.Duration) {
	if !e.queue.beginFreeing(l.Owner) {
		return
	}
	task := func() { // ends when the server has answered, after most, or soon after Close
		defer e.queue.endFreeing(l.Owner)
		e.withdrawLoop(release, l.TTL, most)
	}
	if !e.tasks.Go(task) {
		e.queue.endFreeing(l.Owner)
	}
}

// free makes one try of a release. Most share a script with others: those of exclusive locks,
// with no late try to bar.
func (e *Engine) free(ctx context.Context, l driver.Lease, release redisconn.Call) redisconn.Reply {
	single := func() redisconn.Reply { return e.conn.Eval(ctx, []redisconn.Call{release})[0] }
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
	case 's', refused: // it needs a look of its own, or was refused with others
		return single()
	}
	return redisconn.Reply{Err: v.err}
}

// releaseCall makes a call of the release script. Late is until when a try of the acquire may
// still be served, which it must not be; 0 if there is none.
func (c *client) releaseCall(lock, owner string, token, late int64) redisconn.Call {
	which := strconv.FormatInt(time.Now().UnixNano(), 36) // no other release of this owner
	args := []string{owner, strconv.FormatInt(token, 10), which}
	if late > 0 {
		args = append(args, strconv.FormatInt(late, 10))
	}
	return c.call(releaseScript, lock, args...)
}

// giveBack releases a grant that its request does not use, without blocking.
func (c *client) giveBack(release redisconn.Call) {
	c.tasks.Go(func() { c.withdrawLoop(release, 0, withdrawLimit) }) // ends when the server has answered, after withdrawLimit, or soon after Close
}

// Break ends every acquisition of name and its minimum hold, tells the holders that
// can be reached, and lets in whoever is next. A lock that another program took is deleted.
func (e *Engine) Break(ctx context.Context, name, reason string) (int64, error) {
	return e.breaks(ctx, name, reason)
}

// BreakOwner is Break for one acquisition: that of owner, and of nobody else; see
// [driver.OwnerBreaker].
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
			return token, nil
		}
	}
	return 0, malformed(text)
}
