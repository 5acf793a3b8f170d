package redislock

import (
	"context"
	"fmt"
	"strconv"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// Release ends an acquisition and hands the name to the next waiter. Passing errors are
// tried again, for no longer than RetryTimeout, and after that in the background until
// the lease is over. It may be called again if it failed.
func (e *Engine) Release(ctx context.Context, l driver.Lease) error {
	ks, err := e.keysOf(l.Name)
	if err != nil {
		return err
	}
	late := e.queue.lateOf(l.Owner)
	// The hold is forgotten after the answer: until then a message about it is understood.
	r := e.insistFree(ctx, ks, l, late)
	e.queue.forget(l.Owner)
	// Another release would not know of the late try; and a shared one that came before this
	// release has got a place of its own, beside that of the acquisition.
	if late > 0 && (r.Err != nil || l.Mode == driver.Shared) {
		e.acquirer.withdraw(&waiter{keys: ks, owner: l.Owner, desc: e.id + " x 0 0 0 ", late: late}, 0)
	}
	return e.standing(l, r)
}

// insistFree makes tries of a release until the server answers. Each has a limit of its own:
// the connection may be silent, and the next try may reach another server. After a try
// without an answer, an acquisition that is gone is one that was released.
func (e *Engine) insistFree(ctx context.Context, ks keys, l driver.Lease, late int64) redisconn.Reply {
	limited := redisconn.WithDeadline(ctx, e.cfg.RetryTimeout)
	limit, unknown := attemptLimit(l.TTL), false
	var why error
	for pause := newBackoff(); ; pause.Wait(limited) {
		r := e.free(redisconn.WithDeadline(limited, limit), ks, l, late)
		if r.Err == nil {
			if unknown && r.Text == "gone" {
				r.Text = "ok"
			}
			return r
		}
		_, refused := redisconn.Refused(r.Err)
		unknown = unknown || !refused
		why = cause(why, r.Err)
		switch {
		case !passing(r.Err) || e.closed.Err() != nil:
			return redisconn.Reply{Err: why}
		case limited.Err() != nil:
			e.freeLater(l, e.releaseCall(ks, l.Mode, l.Owner, l.Token))
			return redisconn.Reply{Err: why}
		}
	}
}

// freeLater goes on with a release in the background: the name would stay closed until its
// lease is over.
func (e *Engine) freeLater(l driver.Lease, release redisconn.Call) {
	if !e.queue.beginFreeing(l.Owner) {
		return
	}
	task := func() { // ends when the server has answered, after the TTL, or soon after Close
		defer e.queue.endFreeing(l.Owner)
		e.withdrawLoop(release, l.TTL, l.TTL)
	}
	if !e.tasks.Go(task) {
		e.queue.endFreeing(l.Owner)
	}
}

// free makes one try of a release. Most share a script with others. Late is until
// when a try of the acquire may still be served: it must not be.
func (e *Engine) free(ctx context.Context, ks keys, l driver.Lease, late int64) redisconn.Reply {
	c := e.releaseCall(ks, l.Mode, l.Owner, l.Token)
	if late > 0 {
		if l.Mode == driver.Exclusive {
			c.Args = append(c.Args, "")
		}
		c.Args = append(c.Args, strconv.FormatInt(late, 10))
	}
	single := func() redisconn.Reply { return e.conn.Eval(ctx, []redisconn.Call{c})[0] }
	// What goes together is of the common kind: exclusive, with no late try to bar.
	if alone := e.batcher.tryStart(); alone || late > 0 || l.Mode != driver.Exclusive || !e.batcher.canBatch() {
		if alone {
			defer e.batcher.finishCall()
		}
		return single()
	}
	limit := attemptLimit(l.TTL)
	v := e.batcher.send(redisconn.WithDeadline(ctx, limit), &pendingOp{keys: ks, limit: limit, args: c.Args[1:]})
	switch v.letter {
	case 'o':
		return redisconn.Reply{Text: "ok"}
	case 'g':
		return redisconn.Reply{Text: "gone"}
	case 's', refused: // it needs the long way, or was refused with others
		return single()
	}
	return redisconn.Reply{Err: v.err}
}

// releaseCall makes a call of the release script.
func (c *client) releaseCall(ks keys, mode driver.Mode, owner string, token int64) redisconn.Call {
	number := strconv.FormatInt(token, 10)
	own := owner + " " + number + " "
	if mode == driver.Shared {
		return c.call(releaseScript, ks, own, number)
	}
	return c.call(releaseScript, ks, "fencelock "+own)
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
	ks, err := e.keysOf(name)
	if err != nil {
		return 0, err
	}
	text, err := e.eval(ctx, e.call(breakScript, ks, args...))
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
