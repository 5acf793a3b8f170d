package redlock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

// breakTTL is the lease of the acquisition that replaces a broken one.
const breakTTL = 2 * time.Second

// breaker ends the locks of other clients.
type breaker struct {
	*client
	lister   *lister
	proposer *proposer
	releaser *releaser
}

// Break breaks a name; see [Engine.Break].
func (b *breaker) Break(ctx context.Context, name, reason string) (int64, error) {
	list, err := b.lister.List(ctx, driver.Query{Prefix: name, Exact: true})
	if err != nil {
		return 0, err
	}
	if len(list) == 0 || len(list[0].Holders) == 0 && list[0].NotBefore.IsZero() {
		return 0, fmt.Errorf("%w: %q", driver.ErrNotHeld, name)
	}
	req, reason := b.request(name, reason)
	pause := retry.NewBackoff(5*time.Millisecond, 250*time.Millisecond)
	for begun := time.Now(); ; pause.Wait(ctx) {
		// Nodes grant a break whoever holds the lock. Only another break or an unreachable node can
		// keep it from a majority.
		o := b.proposer.try(ctx, req, attemptOptions{reason: reason})
		switch {
		case o.won:
			return o.grant.Token, b.reopen(ctx, req, o.grant, list[0])
		case ctx.Err() != nil:
			return 0, unavailable(ctx.Err())
		case o.err != nil && (o.final || o.next > 0 || time.Since(begun) > b.cfg.RetryTimeout):
			return 0, o.err
		}
	}
}

// request returns the request that breaks a name, and its reason.
func (b *breaker) request(name, reason string) (driver.Request, string) {
	if reason == "" {
		reason = "no reason given"
	}
	return driver.Request{Name: name, TTL: min(breakTTL, b.cfg.MaxTTL), Identity: driver.Identity{Note: "breaking: " + reason}}, reason
}

// reopen releases the broken name. If that fails, the name stays closed for breakTTL, or for its
// earlier minimum hold.
func (b *breaker) reopen(ctx context.Context, req driver.Request, g driver.Grant, before driver.Status) error {
	l := driver.Lease{Name: req.Name, Owner: g.Owner, Mode: req.Mode, TTL: req.TTL}
	err := b.releaser.released(ctx, l, true, b.releaser.sendRelease(l, req.Mode == driver.Exclusive))
	if err == nil || before.NotBefore.IsZero() {
		return nil
	}
	return fmt.Errorf("%q is broken, but its minimum hold may not have ended; break it again: %w", req.Name, err)
}

// BreakOwner is Break for one acquisition; see [Engine.BreakOwner]. The state of the name
// determines the mode of the request: holders that share the name with owner must stay, and the
// token of an exclusive holder that has come meanwhile is already greater than owner's.
func (b *breaker) BreakOwner(ctx context.Context, name, owner, reason string) (int64, error) {
	req, reason := b.request(name, reason)
	pause := retry.NewBackoff(5*time.Millisecond, 250*time.Millisecond)
	for begun, tried := time.Now(), false; ; pause.Wait(ctx) {
		list, err := b.lister.List(ctx, driver.Query{Prefix: name, Exact: true})
		if err != nil {
			return 0, err
		}
		status := driver.Status{Name: name}
		if len(list) > 0 {
			status = list[0]
		}
		others := slices.DeleteFunc(slices.Clone(status.Holders), func(h driver.Holder) bool { return h.Owner == owner })
		req.Mode = driver.Exclusive
		switch {
		// An earlier attempt may have reached a majority although it reported failure. Then the
		// owner is gone, but a greater token is still needed.
		case len(others) == len(status.Holders) && !tried:
			return 0, fmt.Errorf("%w: %q by %s", driver.ErrNotHeld, name, owner)
		case len(others) > 0 && status.Mode == driver.Exclusive:
			return others[0].Token, nil
		case len(others) > 0:
			req.Mode = driver.Shared
		}
		o := b.proposer.try(ctx, req, attemptOptions{reason: reason, only: owner})
		tried = true
		switch {
		case o.won:
			return o.grant.Token, b.reopen(ctx, req, o.grant, status)
		case ctx.Err() != nil:
			return 0, unavailable(ctx.Err())
		case o.err != nil && (o.final || o.next > 0 || time.Since(begun) > b.cfg.RetryTimeout):
			return 0, o.err
		case time.Since(begun) > b.cfg.RetryTimeout:
			return 0, fmt.Errorf("%w: others keep acquiring %q, so no token greater than that of %s could be issued; try again", driver.ErrUnavailable, name, owner)
		}
	}
}
