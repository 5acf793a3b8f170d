package redlock

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// Acquire makes one acquisition; see [driver.Engine]. It returns as soon as a
// majority has decided. Waiters of one process take turns in the order in which
// they came; between processes there is no order. A waiter is woken when a node
// tells of a release, and looks again by itself when a lease may have ended.
func (e *Engine) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	if err := e.begin(); err != nil {
		return driver.Grant{}, err
	}
	defer e.tasks.Done()
	if err := req.Check(e.Traits()); err != nil {
		return driver.Grant{}, err
	}
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	if err := e.probeAll(ctx); err != nil {
		return driver.Grant{}, err
	}
	e.listen()
	if !req.Wait {
		return e.once(ctx, req)
	}
	w := &wait{engine: e, queue: e.queues.enter(req.Name), req: req, arrived: time.Now()}
	defer e.queues.leave(req.Name)
	if req.Mode == driver.Exclusive {
		if err := w.await(ctx); err != nil {
			return driver.Grant{}, err
		}
		defer w.queue.next()
	}
	return w.run(ctx)
}

// collisions is how often a request that does not wait tries again when nobody
// is known to have a majority. The pauses come to about half a second.
const collisions = 12

// once tries until it is decided: attempts that collided are made again.
func (e *Engine) once(ctx context.Context, req driver.Request) (driver.Grant, error) {
	pause, begun, left := retry.NewBackoff(4*time.Millisecond, 100*time.Millisecond), time.Now(), collisions
	var heard driver.Waited
	var past []string
	for {
		o := e.try(ctx, req, attemptOptions{past: past})
		past = append(past, o.owner)
		o.note(ctx, &heard)
		switch {
		case o.won:
			return o.grant, nil
		case o.err != nil && (o.final || ctx.Err() != nil || o.later || time.Since(begun) > e.cfg.RetryTimeout):
			return driver.Grant{}, o.ended(ctx, &heard)
		case o.err == nil && ctx.Err() != nil:
			return driver.Grant{}, heard.Ended(ctx, nil)
		case o.err == nil && (!o.split || left == 0):
			return driver.Grant{}, o.inWay
		case o.err == nil:
			left--
		}
		pause.Wait(ctx)
	}
}
