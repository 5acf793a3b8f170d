package redlock

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// acquirer makes acquisitions, in one or more attempts.
type acquirer struct {
	*client
	set      *nodeSet
	proposer *proposer
	names    *nameIndex
	queues   *localQueues
	news     *news
	listener *listener
}

// Acquire makes one acquisition; see [Engine.Acquire].
func (q *acquirer) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := req.Check(q.cfg.traits()); err != nil {
		return driver.Grant{}, err
	}
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	// Write nothing to an invalid set of nodes.
	if err := q.set.probeAll(ctx); err != nil {
		return driver.Grant{}, err
	}
	q.listener.start()
	if !req.Wait {
		return q.acquireNow(ctx, req)
	}
	w := &wait{acquirer: q, queue: q.queues.enter(req.Name), req: req, arrived: time.Now()}
	defer q.queues.leave(req.Name)
	return w.run(ctx)
}

// collisions is how often a non-blocking request retries after split votes. The pauses add up to
// about half a second.
const collisions = 12

// acquireNow makes attempts until one is decided. An attempt that a majority answered is decided
// unless the votes were split: then nobody has the lock, and if the clients retry at different
// times one of them gets it. An attempt without a majority is repeated for up to RetryTimeout,
// unless a node in quarantine reports that it will take longer.
func (q *acquirer) acquireNow(ctx context.Context, req driver.Request) (driver.Grant, error) {
	pause, begun, left := retry.NewBackoff(4*time.Millisecond, 100*time.Millisecond), time.Now(), collisions
	var waited driver.Waited
	var past []string
	for {
		o := q.proposer.try(ctx, req, attemptOptions{past: past})
		past = append(past, o.owner)
		o.note(ctx, &waited)
		switch {
		case o.won:
			return o.grant, nil
		case o.err != nil && (o.final || ctx.Err() != nil || o.later || time.Since(begun) > q.cfg.RetryTimeout):
			return driver.Grant{}, o.ended(ctx, &waited)
		case o.err == nil && ctx.Err() != nil:
			return driver.Grant{}, waited.Ended(ctx, nil)
		case o.err == nil && (!o.split || left == 0):
			return driver.Grant{}, o.inWay
		case o.err == nil:
			left--
		}
		pause.Wait(ctx)
	}
}

// Adopt makes attempts to replace an acquisition until one is decided. Each node replaces it only if
// it has it. So an attempt that wins has taken the lock from its holder, and one that fails leaves
// the holder a majority or nobody.
func (q *acquirer) Adopt(ctx context.Context, lease driver.Lease, req driver.Request) (driver.Grant, error) {
	if err := q.set.probeAll(ctx); err != nil {
		return driver.Grant{}, err
	}
	q.listener.start()
	pause, begun := retry.NewBackoff(4*time.Millisecond, 100*time.Millisecond), time.Now()
	var waited driver.Waited
	for {
		o := q.proposer.try(ctx, req, attemptOptions{only: lease.Owner})
		if o.err == nil && !o.won {
			o.err = fmt.Errorf("%w: no majority of the nodes passed %q on", driver.ErrUnavailable, req.Name)
		}
		switch {
		case o.won:
			return o.grant, nil
		case o.gone:
			return driver.Grant{}, fmt.Errorf("%w: %q", driver.ErrNotHeld, req.Name)
		case o.final || ctx.Err() != nil || o.later || time.Since(begun) > q.cfg.RetryTimeout:
			return driver.Grant{}, o.ended(ctx, &waited)
		}
		pause.Wait(ctx)
	}
}
