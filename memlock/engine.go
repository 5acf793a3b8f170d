// Package memlock is the engine for one process. It is the reference implementation of the contract
// in package driver, and the test double for code that uses locks. It keeps everything in memory,
// has leases, first come first served, limits, fencing tokens, records and rates, and runs inside a
// testing/synctest bubble, where an hour's lease ends at once.
//
// The switches ([Engine.Lose], [Engine.Kill], [Engine.Freeze] and others) inject the faults of
// production into a test.
//
// # How it works
//
// A store stands for a server, and an [Engine] is one of its clients. One mutex guards the store,
// and nothing blocks under it: each step of a client is a function that runs with the mutex and is
// passed the time. For each name the store has a lock. A request becomes a claim, which waits in
// the lock's queue, becomes a holder, and is confirmed once its client knows. Before and after each
// step, and by a timer when nobody calls, the lock ends what has expired and grants the next claim.
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
	driver.Watcher
	driver.Resizer
	driver.RecordKeeper
	driver.RateLimiter
} = (*Engine)(nil)

// Config tunes a store. The zero value is useful.
type Config struct {
	// MaxTTL is the longest TTL a request may ask for; a longer one is
	// driver.ErrInvalid. 0 means no bound, which is the default.
	MaxTTL time.Duration
}

// Engine is one client of a store in memory, as a process is one client of a
// server. All methods may be called from many goroutines at once.
// Use it through fencelock.New: its own Acquire does not renew.
type Engine struct {
	store  *store
	client *client
}

// New returns the first client of a new store; cfg may be nil. Inside a
// testing/synctest bubble, make the store inside the bubble too.
func New(cfg *Config) *Engine {
	s := &store{locks: map[string]*lock{}, records: map[string]record{}}
	if cfg != nil {
		s.maxTTL = cfg.MaxTTL
	}
	return &Engine{s, &client{}}
}

// Client returns another client of the same store: what another process is to a
// server. The switches that name a client act on that client alone.
func (e *Engine) Client() *Engine { return &Engine{e.store, &client{}} }

// Traits promises everything.
func (e *Engine) Traits() driver.Traits {
	return driver.Traits{Engine: "memory", Leased: true, Order: driver.OrderAll, Limits: true, Rates: true, MaxTTL: e.store.maxTTL}
}

// Records returns the store's records, as this client sees them: the switches that
// name a client act on them too. They live as long as the store.
func (e *Engine) Records() driver.Records { return records{e} }

// Renew extends acquisitions to a full TTL from now. One that expired, was
// broken or was released is driver.ErrNotHeld.
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

// Resize sets the limit of a shared name for everybody; see [driver.Resizer].
// The store remembers it for ever.
func (e *Engine) Resize(ctx context.Context, name string, limit int) error {
	if err := driver.CheckResize(name, limit); err != nil {
		return err
	}
	return e.ask(ctx, name, func(l *lock, _ time.Time) error { l.limit = limit; return nil })
}

// Break ends every acquisition of name and its minimum hold, tells the holders why,
// and returns a token greater than theirs. It is driver.ErrNotHeld when nobody holds
// the name and no minimum hold closes it.
func (e *Engine) Break(ctx context.Context, name, reason string) (token int64, err error) {
	return e.end(ctx, name, reason, func(l *lock, now time.Time) ([]*claim, bool) {
		return l.holders, len(l.holders) > 0 || now.Before(l.notBefore)
	})
}

// BreakOwner is Break for one acquisition: that of owner, and of nobody else; see
// [driver.OwnerBreaker].
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

// end takes name from those holders that choose returns. It also says whether there is
// something to end: a minimum hold has no holder.
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
		token = l.store.mint(now) // before the next waiter gets one: it shuts out the old holders alone
		l.revoke(holders, fmt.Errorf("%w: %q was broken: %s", driver.ErrLost, name, reason), now)
		return nil
	})
	return token, err
}

// ask is call with one name.
func (e *Engine) ask(ctx context.Context, name string, f func(l *lock, now time.Time) error) error {
	return e.call(ctx, func(now time.Time) error {
		return e.store.with(name, now, func(l *lock) error { return f(l, now) })
	})
}

// call is do for one call of the engine: late, refused or not answered, when a
// switch says so. A call that is not answered fails when ctx ends, and f has not run:
// so no grant is made whose caller has gone.
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

// do runs f with the store's mutex held, as one step of this client. It blocks
// while the client is frozen.
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
	if e.client.silent { // it is heard of again, so its waiters count
		e.client.silent = false
		s.each(driver.Query{}, now, func(*lock) {})
	}
	err := f(now)
	s.unlock()
	return err
}
