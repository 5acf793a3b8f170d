package redislock

import (
	"context"
	"fmt"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/nameindex"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/google/uuid"
)

// acquirer makes acquisitions, immediately if the name is free, otherwise through the queue.
type acquirer struct {
	*client
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
	limited := redisconn.WithDeadline(ctx, acq.cfg.RetryTimeout)
	lock, err := acq.check(limited, req)
	if err != nil {
		return driver.Grant{}, w.waited.Ended(ctx, err)
	}
	acq.identify(w, lock)
	return acq.acquire(ctx, limited, w)
}

// Adopt makes one acquisition in place of another one.
func (acq *acquirer) Adopt(ctx context.Context, lease driver.Lease, req driver.Request) (driver.Grant, error) {
	if err := req.CheckAdopt(acq.cfg.traits(), lease); err != nil {
		return driver.Grant{}, err
	}
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	w := &waiter{req: req, from: &lease}
	limited := redisconn.WithDeadline(ctx, acq.cfg.RetryTimeout)
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
	w.lock, w.desc, w.owner = lock, describe(acq.id, w.req), newOwner()
}

// check returns what is wrong with the engine, the request or the server. Checking the server costs
// a call, but not on every acquire.
func (acq *acquirer) check(ctx context.Context, req driver.Request) (lock string, err error) {
	if err := req.Check(acq.cfg.traits()); err != nil {
		return "", err
	}
	if acq.cfg.Quarantine && acq.cluster() {
		return "", fmt.Errorf("%w: the quarantine is not available on a Redis Cluster; switch it off", driver.ErrUnsupported)
	}
	if acq.closed.Err() != nil {
		return "", unavailable(errClosed)
	}
	if lock, err = acq.lockKey(req.Name); err != nil {
		return "", err
	}
	if acq.cluster() {
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
		limited = redisconn.WithDeadline(ctx, acq.cfg.RetryTimeout) // since the server answered
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
	if replicas >= acq.cfg.MinReplicas {
		return g, nil
	}
	acq.queue.forget(w.owner)
	acq.withdraw(w, withdrawPatience)
	return driver.Grant{}, w.waited.Ended(ctx, fmt.Errorf("%w: %d of %d replicas acknowledged %q in time",
		driver.ErrUnavailable, replicas, acq.cfg.MinReplicas, w.req.Name))
}
