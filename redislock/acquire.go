package redislock

import (
	"context"
	"fmt"

	"github.com/fencelock/fencelock/driver"
	"github.com/google/uuid"
)

// Acquire makes one acquisition; see [driver.Engine]. Waiters are first come,
// first served, across all clients: the release of a lock grants it to the next
// one, which learns by a published message, in one round trip. Behind a holder
// that is not of this library it polls every 50 to 150 ms.
func (e *Engine) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	w := &waiter{req: req}
	ks, err := e.check(ctx, req)
	if err != nil {
		return driver.Grant{}, w.heard.Ended(ctx, err)
	}
	w.keys, w.desc = ks, e.describe(req)
	if w.owner, err = newOwner(); err != nil {
		return driver.Grant{}, err
	}
	return e.acquire(ctx, w)
}

func newOwner() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("%w: no owner: %w", driver.ErrUnavailable, err)
	}
	return id.String(), nil
}

// acquire tries at once, and waits if it may and must. The subscription by which
// a waiter learns of its grant stands before it joins the queue.
func (e *Engine) acquire(ctx context.Context, w *waiter) (driver.Grant, error) {
	l := e.listen()
	join := w.req.Wait && l.ready()
	a := e.request(ctx, w, join)
	if a.err == nil && w.req.Wait && (a.status == "held" || a.status == "quarantine") {
		w.listen(ctx, a.outlook)
		if err := e.subscribed(ctx, l); err != nil {
			return driver.Grant{}, w.heard.Ended(ctx, err)
		}
		// The first request may still be withdrawn, under its owner.
		next := &waiter{req: w.req, keys: w.keys, desc: w.desc, heard: w.heard}
		var err error
		if next.owner, err = newOwner(); err != nil {
			return driver.Grant{}, err
		}
		w, a = next, e.request(ctx, next, true)
	}
	switch {
	case a.err != nil:
		return driver.Grant{}, w.heard.Ended(ctx, a.err)
	case a.status == "granted":
		e.hold(w, a.grant.Token)
		return e.replicated(ctx, w, a.grant, a.replicas)
	case a.status == "queued":
		return e.wait(ctx, w, a)
	default:
		if err := a.outlook.trouble(); err != nil {
			return driver.Grant{}, err
		}
		return driver.Grant{}, a.outlook.held(w.req.Name)
	}
}

// listen notes what the server has said of the name.
func (w *waiter) listen(ctx context.Context, o outlook) {
	if err := o.trouble(); err != nil {
		w.heard.Unavailable(ctx, err)
	} else {
		w.heard.Held(o.held(w.req.Name))
	}
}

// replicated gives a grant back that too few replicas have heard of.
func (e *Engine) replicated(ctx context.Context, w *waiter, g driver.Grant, replicas int) (driver.Grant, error) {
	if replicas >= e.cfg.MinReplicas {
		return g, nil
	}
	e.forget(w.owner)
	e.withdraw(w, withdrawPatience)
	return driver.Grant{}, w.heard.Ended(ctx, fmt.Errorf("%w: %d of %d replicas acknowledged %q in time",
		driver.ErrUnavailable, replicas, e.cfg.MinReplicas, w.req.Name))
}
