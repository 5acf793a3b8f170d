package redlock

import (
	"context"
	"fmt"
	"slices"
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
	req, reason := e.breaking(name, reason)
	pause := retry.NewBackoff(5*time.Millisecond, 250*time.Millisecond)
	for begun := time.Now(); ; pause.Wait(ctx) {
		o := e.try(ctx, req, attemptOptions{reason: reason})
		switch {
		case o.won:
			return o.grant.Token, e.reopen(ctx, req, o.grant, list[0])
		case ctx.Err() != nil:
			return 0, unavailable(ctx.Err())
		case o.err != nil && (o.final || o.next > 0 || time.Since(begun) > e.cfg.RetryTimeout):
			return 0, o.err
		}
	}
}

// breaking is a request that breaks a name, and its reason.
func (e *Engine) breaking(name, reason string) (driver.Request, string) {
	if reason == "" {
		reason = "no reason given"
	}
	return driver.Request{Name: name, TTL: min(breakTTL, e.cfg.MaxTTL), Identity: driver.Identity{Note: "breaking: " + reason}}, reason
}

// reopen lets the name go, which is broken by now; a release that fails leaves it closed
// for breakTTL, or for the minimum hold that it had before.
func (e *Engine) reopen(ctx context.Context, req driver.Request, g driver.Grant, before driver.Status) error {
	l := driver.Lease{Name: req.Name, Owner: g.Owner, Mode: req.Mode, TTL: req.TTL}
	err := e.released(ctx, l, e.end(l, req.Mode == driver.Exclusive))
	if err == nil || before.NotBefore.IsZero() || req.Mode == driver.Shared {
		return nil
	}
	return fmt.Errorf("%q is broken, but not its minimum hold: %w", req.Name, err)
}

// BreakOwner is Break for one acquisition: that of owner, and of nobody else. Each node
// takes the lock from that owner alone, and gives it to the break for a moment, beside
// those who share it. The token is of the break, or of an exclusive holder that
// came in between.
func (e *Engine) BreakOwner(ctx context.Context, name, owner, reason string) (int64, error) {
	if err := driver.CheckName(name); err != nil {
		return 0, err
	}
	if err := e.begin(); err != nil {
		return 0, err
	}
	defer e.tasks.Done()
	req, reason := e.breaking(name, reason)
	pause := retry.NewBackoff(5*time.Millisecond, 250*time.Millisecond)
	for begun, tried := time.Now(), false; ; pause.Wait(ctx) {
		list, err := e.List(ctx, driver.Query{Prefix: name, Exact: true})
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
		case len(others) == len(status.Holders) && !tried:
			return 0, fmt.Errorf("%w: %q by %s", driver.ErrNotHeld, name, owner)
		case len(others) > 0 && status.Mode == driver.Exclusive:
			return others[0].Token, nil
		case len(others) > 0:
			req.Mode = driver.Shared
		}
		o := e.try(ctx, req, attemptOptions{reason: reason, only: owner})
		tried = true
		switch {
		case o.won:
			return o.grant.Token, e.reopen(ctx, req, o.grant, status)
		case ctx.Err() != nil:
			return 0, unavailable(ctx.Err())
		case o.err != nil && (o.final || o.next > 0 || time.Since(begun) > e.cfg.RetryTimeout):
			return 0, o.err
		case time.Since(begun) > e.cfg.RetryTimeout:
			return 0, fmt.Errorf("%w: others keep %q busy, so no token was had that shuts %s out", driver.ErrUnavailable, name, owner)
		}
	}
}
