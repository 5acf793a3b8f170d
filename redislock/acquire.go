package redislock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/redisfmt"
	"github.com/fencelock/fencelock/internal/retry"
	"github.com/google/uuid"
)

// acquirer makes acquisitions, immediately if the name is free, otherwise through the queue.
type acquirer struct {
	client   *client
	queue    *waitQueue
	batcher  *batcher
	listener *listener
	server   *serverCheck
	marker   *marker
	parts    *parts
}

// Acquire makes one acquisition.
func (acq *acquirer) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	w := &waiter{req: req}
	limited := redisconn.WithDeadline(ctx, acq.client.cfg.RetryTimeout)
	lock, err := acq.check(limited, req)
	if err != nil {
		return driver.Grant{}, w.waited.Ended(ctx, err)
	}
	acq.identify(w, lock)
	return acq.acquire(ctx, limited, w)
}

// Adopt makes one acquisition in place of another one.
func (acq *acquirer) Adopt(ctx context.Context, lease driver.Lease, req driver.Request) (driver.Grant, error) {
	if err := req.CheckAdopt(acq.client.cfg.traits(), lease); err != nil {
		return driver.Grant{}, err
	}
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	w := &waiter{req: req, from: &lease}
	limited := redisconn.WithDeadline(ctx, acq.client.cfg.RetryTimeout)
	lock, err := acq.check(limited, req)
	if err != nil {
		return driver.Grant{}, w.waited.Ended(ctx, err)
	}
	acq.identify(w, lock)
	acq.listener.start() // for the message of a break
	a := acq.request(ctx, limited, w, false)
	if a.err != nil {
		return driver.Grant{}, w.waited.Ended(ctx, a.err)
	}
	acq.hold(w, a.grant, false)
	return acq.replicated(ctx, w, a.grant, a.replicas)
}

// identify gives a request its key, description and owner.
func (acq *acquirer) identify(w *waiter, lock string) {
	// Each acquisition has an owner of its own, so that an attempt that arrives late is not
	// mistaken for another acquisition.
	w.lock, w.desc, w.owner = lock, describe(acq.client.id, w.req), newOwner()
}

// check returns what is wrong with the engine, the request or the server. Checking the server costs
// a call, but not on every acquire.
func (acq *acquirer) check(ctx context.Context, req driver.Request) (lock string, err error) {
	if err := req.Check(acq.client.cfg.traits()); err != nil {
		return "", err
	}
	if acq.client.cfg.Quarantine && acq.client.cluster() {
		return "", fmt.Errorf("%w: the quarantine is not available on a Redis Cluster; switch it off", driver.ErrUnsupported)
	}
	if acq.client.closed.Err() != nil {
		return "", unavailable(errClosed)
	}
	if lock, err = acq.client.lockKey(req.Name); err != nil {
		return "", err
	}
	if acq.client.cluster() {
		acq.parts.know()
	}
	return lock, acq.server.require(ctx)
}

func newOwner() string { return uuid.Must(uuid.NewV7()).String() } // never fails

// acquire makes a first attempt and then waits, if the request allows it. The client must be
// subscribed before a request joins the queue: a grant whose message is lost would block the lock
// until it expires. If there is no subscription yet, the first attempt does not join the queue,
// because a free name needs none. The first attempt ends with limited, which includes the check.
func (acq *acquirer) acquire(ctx, limited context.Context, w *waiter) (driver.Grant, error) {
	join := acq.listener.start() && w.req.Wait
	a := acq.request(ctx, limited, w, join)
	if a.err == nil && w.req.Wait && (a.status == "held" || a.status == "quarantine") {
		w.noteBlocked(ctx, a.blocked)
		limited = redisconn.WithDeadline(ctx, acq.client.cfg.RetryTimeout) // since the server answered
		if err := acq.listener.subscribed(limited); err != nil {
			return driver.Grant{}, w.waited.Ended(ctx, err)
		}
		// The first request may still be withdrawn, under its owner.
		next := &waiter{req: w.req, lock: w.lock, desc: w.desc, waited: w.waited, owner: newOwner()}
		w, a = next, acq.request(ctx, limited, next, true)
	}
	switch {
	case a.err != nil:
		return driver.Grant{}, w.waited.Ended(ctx, a.err)
	case a.status == "granted":
		acq.hold(w, a.grant, false)
		return acq.replicated(ctx, w, a.grant, a.replicas)
	case a.status == "queued":
		return acq.wait(ctx, w, a)
	default:
		if err := a.blocked.trouble(); err != nil {
			return driver.Grant{}, err
		}
		return driver.Grant{}, a.blocked.held(w.req.Name)
	}
}

// noteBlocked records what the server reported about the name.
func (w *waiter) noteBlocked(ctx context.Context, o blockedInfo) {
	if err := o.trouble(); err != nil {
		w.waited.Unavailable(ctx, err)
	} else {
		w.waited.Held(o.held(w.req.Name))
	}
}

// hold remembers a granted acquisition. short says that its lease is that of a hand-over.
func (acq *acquirer) hold(w *waiter, g driver.Grant, short bool) {
	acq.marker.extend()
	acq.queue.keep(w, g, short)
	acq.queue.index.Add(nameindex.Noted{Owner: w.owner, Name: w.req.Name, Life: max(w.req.TTL, w.req.MinHold) + nameindex.Lag, Closes: w.req.MinHold > 0})
	if w.broken == g.Token {
		acq.queue.reportBroken(w.owner, g.Token, w.reason)
	}
}

// replicated returns a grant that enough replicas have acknowledged. Otherwise it releases the
// grant, because a failover to another replica would lose it. The hold is forgotten first: the
// caller never had it.
func (acq *acquirer) replicated(ctx context.Context, w *waiter, g driver.Grant, replicas int) (driver.Grant, error) {
	if replicas >= acq.client.cfg.MinReplicas {
		return g, nil
	}
	acq.queue.forget(w.owner)
	acq.withdraw(w, withdrawPatience)
	return driver.Grant{}, w.waited.Ended(ctx, fmt.Errorf("%w: %d of %d replicas acknowledged %q in time",
		driver.ErrUnavailable, replicas, acq.client.cfg.MinReplicas, w.req.Name))
}

// wait blocks until a queued request is granted or ctx ends. If it ends without a grant, it
// withdraws the request, even if a grant is on its way.
func (acq *acquirer) wait(ctx context.Context, w *waiter, a answer) (driver.Grant, error) {
	if !acq.client.tasks.Enter() {
		acq.withdraw(w, withdrawPatience)
		return driver.Grant{}, unavailable(errClosed)
	}
	defer acq.client.tasks.Leave()
	acq.queue.join(w, a)
	granted := false
	defer func() { // also if OnWait panics
		if !granted {
			acq.withdraw(w, withdrawPatience)
		}
	}()
	w.see(ctx, queueState{blocked: a.blocked})
	if w.req.OnWait != nil {
		held, trouble := w.waited.Last()
		w.req.OnWait(driver.WaitInfo{Position: a.position, Held: held, Trouble: trouble})
	}
	for {
		n, s := acq.queue.read(w)
		if s != nil {
			w.see(ctx, *s)
		}
		if n != nil {
			g, ok, err := acq.take(ctx, w, *n)
			if err != nil {
				return driver.Grant{}, w.waited.Ended(ctx, err)
			}
			if ok {
				granted = true
				return g, nil
			}
			acq.queue.requeue(w)
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return driver.Grant{}, w.waited.Ended(ctx, nil)
		case <-acq.client.closed.Done():
			return driver.Grant{}, unavailable(errClosed)
		}
	}
}

// requeue puts a request back at its old place, after its grant expired before it was taken. If
// another grant has arrived meanwhile, that one is handled next.
func (q *waitQueue) requeue(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.queued = w.msg == nil
	if g := q.groups[w.req.Name]; g != nil {
		g.lost = true
		g.advance(0)
	}
}

// see records the state of the queue for the request's error.
func (w *waiter) see(ctx context.Context, s queueState) {
	if s.err != nil {
		w.waited.Unavailable(ctx, s.err)
	} else {
		w.noteBlocked(ctx, s.blocked)
	}
}

// take accepts a grant. The grant is younger than the request with which the message says that it
// began, and than this request's own: the lease counts from the later of the two. The holder's first
// renewal confirms it. take confirms it first if less than half of it is left, if its age is
// unknown, or if it must reach replicas or start a minimum hold. ok is false if it no longer exists.
func (acq *acquirer) take(ctx context.Context, w *waiter, n grantMsg) (g driver.Grant, ok bool, err error) {
	if n.err != nil {
		return g, false, n.err
	}
	g = driver.Grant{Owner: w.owner, Token: n.token, Floor: n.floor, Sent: n.sent, TTL: min(w.req.TTL, grantLife)}
	if g.Sent.Before(w.asked) && !g.Sent.IsZero() {
		g.Sent = w.asked
	}
	short := g.TTL < w.req.TTL
	if g.Sent.IsZero() || time.Since(g.Sent) > g.TTL/2 || w.req.MinHold > 0 || acq.client.cfg.MinReplicas > 0 {
		if ok, err = acq.confirm(ctx, w, &g); !ok {
			return driver.Grant{}, false, err
		}
		short = false
	}
	acq.hold(w, g, short)
	return g, true, nil
}

// confirm checks that a grant still exists and extends it to the full TTL, counted from the attempt
// that was answered. A lost call may be repeated: the second one finds the same grant.
func (acq *acquirer) confirm(ctx context.Context, w *waiter, g *driver.Grant) (bool, error) {
	token, life := strconv.FormatInt(g.Token, 10), redisfmt.Millis(w.req.TTL)
	call := renewCall(w.lock, w.owner, token, life)
	if w.req.Mode == driver.Shared || w.req.MinHold > 0 {
		call = acq.client.newCall(confirmScript, w.lock, w.owner, token, life, redisfmt.Millis(w.req.MinHold))
	}
	for pause := newBackoff(); ; pause.Wait(ctx) {
		sent := time.Now()
		r := acq.attempt(ctx, w, call)
		switch {
		case r.Err != nil && (!passing(r.Err) || ctx.Err() != nil || acq.client.closed.Err() != nil):
			return false, unavailable(r.Err)
		case r.Err != nil:
		case strings.HasPrefix(r.Text, "gone"):
			return false, nil
		default:
			g.Sent, g.TTL, g.Floor = sent, w.req.TTL, g.Token
			if floor, ok := strings.CutPrefix(r.Text, "ok "); ok {
				in := redisfmt.Words{Rest: floor}
				g.Floor = in.Int()
			}
			_, err := acq.replicated(ctx, w, *g, r.Replicas)
			return err == nil, err
		}
	}
}

const (
	// withdrawPatience is how long a caller waits for its withdrawal to finish.
	withdrawPatience = time.Second
	// silentPatience is the same for a request that the server has not answered either.
	silentPatience = 100 * time.Millisecond
	// withdrawLimit is how long a withdrawal is retried. By then a grant that was not taken has
	// expired, and so has the request's place in the queue.
	withdrawLimit = time.Minute
	// closeLimit is how long the last attempt may run after Close.
	closeLimit = 500 * time.Millisecond
)

// withdraw removes a request from the queue or releases its grant. It ignores the caller's context,
// blocks for at most patience and then continues in the background. Attempts of the request that
// reach the server after the withdrawal have no effect.
func (acq *acquirer) withdraw(w *waiter, patience time.Duration) {
	acq.queue.unregister(w)
	args := []string{w.owner, w.desc}
	if w.late > 0 {
		args = append(args, strconv.FormatInt(w.late, 10))
	}
	c := acq.client.newCall(leaveScript, w.lock, args...)
	gone := make(chan struct{})
	task := func() { // ends when the server has answered, after withdrawLimit, or soon after Close
		acq.client.withdrawLoop(c, w.req.TTL, withdrawLimit)
		close(gone)
	}
	if !acq.client.tasks.Go(task) {
		task()
		return
	}
	retry.Nap(context.Background(), patience, gone)
}

// moving ends the reply to a release that could not hand the lock over, because its slot is being
// moved.
const moving = "moving"

// withdrawLoop repeats a withdrawal, or the release of a grant, until the server has executed it
// completely, for at most the given time. Each attempt has the time limit of a lock with this TTL.
func (c *client) withdrawLoop(call redisconn.Call, ttl, limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	defer context.AfterFunc(c.closed, func() { // ends after closeLimit
		retry.Sleep(ctx, closeLimit)
		cancel()
	})()
	for pause := newBackoff(); ctx.Err() == nil; pause.Wait(c.closed) {
		limited, cancel := context.WithTimeout(ctx, attemptLimit(ttl))
		text, err := c.eval(limited, call)
		cancel()
		_, rest, _ := strings.Cut(text, " ")
		c.unpublished(call.Keys[0], rest)
		if err == nil && rest != moving || err != nil && !passing(err) || c.closed.Err() != nil {
			return
		}
	}
}
