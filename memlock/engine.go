// Package memlock implements fencelock's locks in the memory of one process. It is the reference
// implementation of the contract in package driver, and a test double for code that uses locks. It
// has every feature that any engine has: leases, first come first served, limits and fencing
// tokens. In a testing/synctest bubble, a lease of an hour expires in no time.
//
// The fault switches ([Engine.Lose], [Engine.Kill], [Engine.Freeze] and others) simulate failures
// of clients and servers.
//
// # How it works
//
// A store plays the role of a server, and an [Engine] is one of its clients. One mutex guards the
// store, and nothing blocks under it: each step of a client is a function that runs with the mutex
// and gets the time. The store keeps a lock for each name. A request becomes a claim, which waits
// in the lock's queue, becomes a holder, and is confirmed once its client knows of its grant.
// Before and after each step, and when a timer fires, the lock is handed over: expired holders are
// removed and the next waiters are granted.
package memlock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
)

var _ interface {
	driver.Engine
	driver.Lister
	driver.Breaker
	driver.OwnerBreaker
	driver.Adopter
	driver.Watcher
	driver.Resizer
	driver.RecordKeeper
	driver.RateLimiter
} = (*Engine)(nil)

// Config configures a store. The zero value has usable defaults.
type Config struct {
	// MaxTTL is the longest TTL that a request may have; a longer one is driver.ErrInvalid. 0, the
	// default, means no limit.
	MaxTTL time.Duration
}

// Engine is one client of a store, as a process is one client of a server. It is safe for
// concurrent use. Pass it to fencelock.New, which renews leases; Engine.Acquire alone does not.
type Engine struct {
	store  *store
	client *client
}

// New returns the first client of a new store; cfg may be nil. To use the store in a
// testing/synctest bubble, call New in the bubble.
func New(cfg *Config) *Engine {
	s := &store{locks: map[string]*lock{}, records: map[string]record{}, swapped: make(chan struct{})}
	if cfg != nil {
		s.maxTTL = cfg.MaxTTL
	}
	return &Engine{s, &client{}}
}

// Client returns another client of the same store, which simulates another process. A fault switch
// of a client affects only that client, unless it says otherwise.
func (e *Engine) Client() *Engine { return &Engine{e.store, &client{}} }

// Traits returns the engine's capabilities, which are all that there are.
func (e *Engine) Traits() driver.Traits {
	return driver.Traits{Engine: "memory", Leased: true, Order: driver.OrderAll, Limits: true, Rates: true, MaxTTL: e.store.maxTTL}
}

// Records returns the store's records as this client sees them: fault switches of the client affect
// them too. They exist as long as the store.
func (e *Engine) Records() driver.Records { return records{e} }

// Renew extends acquisitions to a full TTL from now. It returns driver.ErrNotHeld for those that
// expired, were broken or were released.
func (e *Engine) Renew(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	err := e.call(ctx, func(now time.Time) error {
		for i, lease := range leases {
			errs[i] = e.store.with(lease.Name, now, func(l *lock) error {
				c, err := l.holder(lease)
				if err == nil {
					c.until = now.Add(c.req.TTL)
				}
				return err
			})
		}
		return nil
	})
	if err != nil {
		return slices.Repeat([]error{err}, len(leases))
	}
	return errs
}

// Release ends an acquisition and hands the name to the next waiter.
func (e *Engine) Release(ctx context.Context, lease driver.Lease) error {
	return e.ask(ctx, lease.Name, func(l *lock, now time.Time) error {
		c, err := l.holder(lease)
		if err == nil {
			l.end(c, driver.EventReleased, now)
		}
		return err
	})
}

// Resize sets the limit of a shared name for all clients; see [driver.Resizer]. The store keeps it
// until the next Resize.
func (e *Engine) Resize(ctx context.Context, name string, limit int) error {
	if err := driver.CheckResize(name, limit); err != nil {
		return err
	}
	return e.ask(ctx, name, func(l *lock, _ time.Time) error { l.limit = limit; return nil })
}

// Break ends every acquisition of name and its minimum hold, notifies the holders, and returns a
// token greater than theirs. It returns driver.ErrNotHeld if nobody holds the name and no minimum
// hold closes it.
func (e *Engine) Break(ctx context.Context, name, reason string) (token int64, err error) {
	return e.end(ctx, name, reason, func(l *lock, now time.Time) ([]*claim, bool) {
		return l.holders, len(l.holders) > 0 || now.Before(l.notBefore)
	})
}

// BreakOwner is like Break, but ends only the acquisition of owner; see [driver.OwnerBreaker].
func (e *Engine) BreakOwner(ctx context.Context, name, owner, reason string) (token int64, err error) {
	return e.end(ctx, name, reason, func(l *lock, _ time.Time) ([]*claim, bool) {
		for _, c := range l.holders {
			if c.owner == owner {
				return []*claim{c}, true
			}
		}
		return nil, false
	})
}

// end takes name from the holders that choose returns. choose also reports whether there is
// anything to end, because a minimum hold has no holder.
func (e *Engine) end(ctx context.Context, name, reason string, choose func(*lock, time.Time) ([]*claim, bool)) (token int64, err error) {
	if err := driver.CheckName(name); err != nil {
		return 0, err
	}
	err = e.ask(ctx, name, func(l *lock, now time.Time) error {
		holders, ok := choose(l, now)
		if !ok {
			return notHeld(name)
		}
		l.notBefore = time.Time{}
		token = l.store.issue(now) // before the next waiter gets a greater one
		l.revoke(holders, fmt.Errorf("%w: %q was broken: %s", driver.ErrBroken, name, reason), now)
		return nil
	})
	return token, err
}

// ask is call for one name.
func (e *Engine) ask(ctx context.Context, name string, f func(l *lock, now time.Time) error) error {
	return e.call(ctx, func(now time.Time) error {
		return e.store.with(name, now, func(l *lock) error { return f(l, now) })
	})
}

// call runs f as one call of the engine. Fault switches may delay it, fail it or leave it
// unanswered. An unanswered call fails when ctx ends, and f has not run then: so nothing is granted
// to a caller that is gone.
func (e *Engine) call(ctx context.Context, f func(now time.Time) error) error {
	var delay time.Duration
	_ = e.do(func(time.Time) error { delay = e.client.delay; return nil })
	retry.Sleep(ctx, delay)
	for {
		var hung chan struct{}
		err := e.do(func(now time.Time) error {
			switch {
			case e.client.refusal != nil:
				return e.client.refusal
			case ctx.Err() != nil:
				return fmt.Errorf("%w: no answer: %w", driver.ErrUnavailable, ctx.Err())
			case e.store.hung != nil:
				hung = e.store.hung
				return nil
			}
			return f(now)
		})
		if hung == nil {
			return err
		}
		select {
		case <-hung:
		case <-ctx.Done():
		}
	}
}

// do runs f with the store's mutex held, as one step of this client. It blocks while the client is
// frozen.
func (e *Engine) do(f func(now time.Time) error) error {
	s := e.store
	s.mu.Lock()
	for e.client.frozen != nil {
		thawed := e.client.frozen
		s.mu.Unlock()
		<-thawed
		s.mu.Lock()
	}
	now := time.Now()
	if e.client.silent { // it is active again, so its waiters count
		e.client.silent = false
		s.each(driver.Query{}, now, func(*lock) {})
	}
	err := f(now)
	s.unlock()
	return err
}
