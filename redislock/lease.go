package redislock

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
)

// Renew extends acquisitions, all in one pipeline. It returns driver.ErrNotHeld for those that
// expired, were broken or deleted, or whose key another program replaced. After a pipeline that was
// not answered, the next one uses a new connection of a go-redis client. A closed engine renews
// nothing.
func (e *Engine) Renew(ctx context.Context, leases []driver.Lease) []error {
	if e.client.tasks.Closed.Err() != nil {
		return slices.Repeat([]error{unavailable(errClosed)}, len(leases))
	}
	// The short renew script compares the value of an exclusive lock. Shared locks are sorted sets
	// and need the longer script.
	errs := make([]error, len(leases))
	calls := make([]redisconn.Call, 0, len(leases))
	where := make([]int, 0, len(leases))
	for i, l := range leases {
		lock, err := e.client.lockKey(l.Name)
		if err != nil {
			errs[i] = err
			continue
		}
		token := strconv.FormatInt(l.Token, 10)
		c := renewCall(lock, l.Owner, token, redisfmt.Millis(l.TTL))
		if l.Mode == driver.Shared {
			c = e.client.newCall(confirmScript, lock, l.Owner, token, redisfmt.Millis(l.TTL), "0")
		}
		c.Args = append(c.Args, "left")
		calls = append(calls, c)
		where = append(where, i)
	}
	if len(calls) == 0 {
		return errs
	}
	part := e.Part(leases[where[0]])
	if _, silent := e.silent.Load(part); silent {
		ctx = redisconn.Fresh(ctx)
	}
	unanswered, sent := false, time.Now()
	replies := e.client.conn.Eval(ctx, calls)
	now := time.Now()
	steady := e.client.own.steady(now)
	for i, r := range replies {
		l := leases[where[i]]
		errs[where[i]] = e.standing(l, r)
		_, refused := redisconn.Refused(r.Err)
		unanswered = unanswered || r.Err != nil && !refused
		if errs[where[i]] == nil {
			if early := e.queue.extended(l, sent, now, steady, leftOf(r.Text)); early > 0 {
				e.shortened(calls[i].Keys[0], early)
			}
		}
	}
	if unanswered && !redisconn.IsFresh(ctx) { // after one on a new connection, the pool is tried again
		e.silent.Store(part, true)
	} else {
		e.silent.Delete(part)
	}
	for i, l := range leases {
		if errs[i] == nil {
			e.queue.index.Add(nameindex.Noted{Owner: l.Owner, Name: l.Name, Life: l.TTL + nameindex.Lag})
		}
	}
	return errs
}

// leftOf returns how long a lease would have lasted without its renewal, the last word of the
// answer; it is negative for one without an end.
func leftOf(answer string) time.Duration {
	ms, err := strconv.ParseInt(answer[strings.LastIndexByte(answer, ' ')+1:], 10, 64)
	if err != nil {
		return -1
	}
	return time.Duration(ms) * time.Millisecond
}

// shortened warns that the server would have ended a lease earlier than it was asked for. A program
// that renews with EXPIRE and does not compare the owner does that. A server whose clock was set
// forward and a replica that was promoted without the last renewal look the same, so the hold
// continues.
func (e *Engine) shortened(lock string, early time.Duration) {
	e.client.tasks.Go(func() { // ends when the logger returns
		e.client.cfg.Logger.Warn("another program has shortened the lease of a lock that is held here (or the server's clock was set, or a replica took over); if a lease ends before it is renewed, a second holder gets in",
			"key", lock, "error", fmt.Sprintf("%s would have ended %v too early", lock, early.Round(time.Millisecond)),
			"fix", "let that program compare the owner before it renews or deletes, or use other names")
	})
}

// renewCall renews an exclusive lock, and confirms a grant of one.
func renewCall(lock, owner, token, life string) redisconn.Call {
	return redisconn.Call{Script: renewScript, Keys: []string{lock}, Args: []string{holderPrefix + owner + " " + token + " ", life}}
}

// standing converts the answer for one acquisition to an error. If the acquisition is gone, its
// hold is forgotten, as later messages about it are irrelevant.
func (e *Engine) standing(l driver.Lease, r redisconn.Reply) error {
	switch {
	case r.Err != nil:
		return unavailable(r.Err)
	case strings.HasPrefix(r.Text, "gone"):
		e.queue.forget(l.Owner)
		return fmt.Errorf("%w: %q", driver.ErrNotHeld, l.Name)
	}
	return nil
}

// Release ends an acquisition and hands the name to the next waiter. Transient errors are retried
// for up to RetryTimeout, and then in the background until the lease expires. After an error
// Release may be called again.
func (e *Engine) Release(ctx context.Context, l driver.Lease) error {
	lock, err := e.client.lockKey(l.Name)
	if err != nil {
		return err
	}
	// Forget the hold after the answer, so that messages about it are still understood until then.
	r := e.retryRelease(ctx, l, e.client.releaseCall(lock, l.Owner, l.Token, e.queue.lateOf(l.Owner)))
	e.queue.forget(l.Owner)
	_, failure, _ := strings.Cut(r.Text, " ")
	e.client.unpublished(lock, failure)
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

// retryRelease repeats a release until the server answers. Each attempt has its own time limit,
// because the connection may be dead and the next attempt may reach another server. After an
// unanswered attempt on a connection of the pool, the next one uses a new connection, and "gone"
// means that the lock has been released. Whatever remains to be done continues in the background.
func (e *Engine) retryRelease(ctx context.Context, l driver.Lease, release redisconn.Call) redisconn.Reply {
	limited := redisconn.WithDeadline(ctx, e.client.cfg.RetryTimeout)
	limit, unknown := attemptLimit(l.TTL), false
	var why error
	attemptCtx := limited
	for pause := newBackoff(); ; pause.Wait(limited) {
		r := e.free(redisconn.WithDeadline(attemptCtx, limit), l, release)
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
		attemptCtx = next(attemptCtx, limited, r.Err)
		why = cause(why, r.Err)
		if !passing(r.Err) || e.client.closed.Err() != nil || limited.Err() != nil {
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
		e.client.withdrawLoop(release, l.TTL, limit)
	}
	if !e.client.tasks.Go(task) {
		e.queue.endFreeing(l.Owner)
	}
}

// free makes one attempt of a release. Releases of exclusive locks without an outstanding acquire
// attempt may share a script.
func (e *Engine) free(ctx context.Context, l driver.Lease, release redisconn.Call) redisconn.Reply {
	single := func() redisconn.Reply { return e.client.conn.Eval(ctx, []redisconn.Call{release})[0] }
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
	return c.newCall(releaseScript, lock, args...)
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
	lock, err := e.client.lockKey(name)
	if err != nil {
		return 0, err
	}
	text, err := e.client.eval(ctx, e.client.newCall(breakScript, lock, args...))
	if err != nil {
		return 0, unavailable(err)
	}
	in := redisfmt.Words{Rest: text}
	switch in.Next() {
	case "gone":
		return 0, fmt.Errorf("%w: %q", driver.ErrNotHeld, name)
	case "broken":
		if token := in.Int(); !in.Bad {
			e.client.unpublished(lock, in.Rest)
			return token, nil
		}
	}
	return 0, malformed(text)
}
