package redlock

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// breakTTL is the lease of the acquisition that breaks another.
const breakTTL = 2 * time.Second

// Break takes a name away from its holders on all nodes, mints a token greater
// than theirs, ends the minimum hold, and lets the name go. Holders that can be reached
// learn at once. An error that comes with a token says that the minimum hold may stand.
func (e *Engine) Break(ctx context.Context, name, reason string) (int64, error) {
	if err := driver.CheckName(name); err != nil {
		return 0, err
	}
	list, err := e.List(ctx, driver.Query{Prefix: name, Exact: true})
	if err != nil {
		return 0, err
	}
	if len(list) == 0 || len(list[0].Holders) == 0 && list[0].NotBefore.IsZero() {
		return 0, fmt.Errorf("%w: %q", driver.ErrNotHeld, name)
	}
	if err := e.begin(); err != nil {
		return 0, err
	}
	defer e.tasks.Done()
	if reason == "" {
		reason = "no reason given"
	}
	req := driver.Request{Name: name, TTL: min(breakTTL, e.cfg.MaxTTL), Identity: driver.Identity{Note: "breaking: " + reason}}
	pause := retry.NewBackoff(5*time.Millisecond, 250*time.Millisecond)
	for begun := time.Now(); ; pause.Wait(ctx) {
		o := e.try(ctx, req, attemptOptions{reason: reason})
		switch {
		case o.won:
			// The name is broken; a release that fails leaves it closed for breakTTL, or
			// for its minimum hold.
			l := driver.Lease{Name: name, Owner: o.grant.Owner, TTL: req.TTL}
			if err := e.released(ctx, l, e.end(l, true)); err != nil && !list[0].NotBefore.IsZero() {
				return o.grant.Token, fmt.Errorf("%q is broken, but not its minimum hold: %w", name, err)
			}
			return o.grant.Token, nil
		case ctx.Err() != nil:
			return 0, unavailable(ctx.Err())
		case o.err != nil && (o.final || o.next > 0 || time.Since(begun) > e.cfg.RetryTimeout):
			return 0, o.err
		}
	}
}
