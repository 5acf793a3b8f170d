package memlock

import (
	"context"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Acquire makes one acquisition; see [driver.Engine]. It returns driver.ErrInvalid if the request's
// limit differs from that of the shared holders or waiters.
func (e *Engine) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	c, err := newClaim(e.client, req, e.Traits())
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return driver.Grant{}, err
	}
	err = e.ask(ctx, req.Name, func(l *lock, now time.Time) error { return l.admit(c, now) })
	switch {
	case err == nil && !c.granted():
		return e.wait(ctx, c)
	case err != nil && req.Wait:
		err = c.waited.Ended(ctx, err)
	}
	return c.grant, err
}

// Adopt ends an acquisition of any client and grants its name to req; see [driver.Adopter].
func (e *Engine) Adopt(ctx context.Context, lease driver.Lease, req driver.Request) (driver.Grant, error) {
	if err := req.CheckAdopt(e.Traits(), lease); err != nil {
		return driver.Grant{}, err
	}
	c, err := newClaim(e.client, req, e.Traits())
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return driver.Grant{}, err
	}
	err = e.ask(ctx, req.Name, func(l *lock, now time.Time) error { return l.pass(lease, c, now) })
	return c.grant, err
}

// Detach does nothing, since a client keeps no list of its acquisitions.
func (e *Engine) Detach(driver.Lease) {}

// wait blocks until the claim is granted and confirmed, or ctx ends.
func (e *Engine) wait(ctx context.Context, c *claim) (driver.Grant, error) {
	answered := false
	defer func() {
		if !answered { // OnWait panicked, so nobody takes the grant
			_ = e.do(func(now time.Time) error {
				return e.store.with(c.req.Name, now, func(l *lock) error { l.withdraw(c, now); return nil })
			})
		}
	}()
	var info driver.WaitInfo
	for first := true; ; first = false {
		err := e.do(func(now time.Time) error {
			return e.store.with(c.req.Name, now, func(l *lock) error {
				err := l.proceed(ctx, c, now)
				if first {
					info = driver.WaitInfo{Position: l.queue.position(c), Held: l.inWay(c, now)}
				}
				return err
			})
		})
		if err != nil || c.granted() {
			answered = true
			return c.grant, err
		}
		if first && c.req.OnWait != nil {
			c.req.OnWait(info)
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
		}
	}
}

// proceed handles a waiting claim that was woken: it takes its grant, gives up, or records what is
// in the way. If the store lost its queue, the claim joins again.
func (l *lock) proceed(ctx context.Context, c *claim, now time.Time) error {
	hung := l.store.hung != nil
	if hung {
		c.waited.Unavailable(context.Background(), errHung)
	} else {
		c.waited.Held(l.inWay(c, now))
	}
	if err := c.client.refusal; err != nil || ctx.Err() != nil {
		l.withdraw(c, now)
		return c.waited.Ended(ctx, err)
	}
	switch {
	case hung: // an unresponsive store confirms nothing
	case c.pending:
		l.confirm(c, now)
	case !slices.Contains(l.queue, c):
		return l.admit(c, now)
	}
	return nil
}
