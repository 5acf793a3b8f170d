// Package memlock is the engine for one process: the reference implementation
// of the contract in package driver, and the double to put under the code you
// test. It keeps everything in memory, promises all that any engine promises
// (leases, first come first served, limits, fencing tokens), and runs inside a
// testing/synctest bubble, where an hour's lease ends in no time.
//
// The switches ([Engine.Lose], [Engine.Kill], [Engine.Freeze] and others)
// rehearse in a test what goes wrong in production.
package memlock

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/google/uuid"
)

var (
	_ driver.Engine       = (*Engine)(nil)
	_ driver.Lister       = (*Engine)(nil)
	_ driver.Breaker      = (*Engine)(nil)
	_ driver.OwnerBreaker = (*Engine)(nil)
	_ driver.Watcher      = (*Engine)(nil)
	_ driver.AllAcquirer  = (*Engine)(nil)
	_ driver.Resizer      = (*Engine)(nil)
	_ driver.Registrar    = (*Engine)(nil)
)

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
	store *store
	client
}

// New returns the first client of a new store; cfg may be nil. Inside a
// testing/synctest bubble, make the store inside the bubble too.
func New(cfg *Config) *Engine {
	s := &store{locks: map[string]*lock{}, tokens: map[string]int64{}, limits: map[string]int{}, records: map[string]record{},
		watchers: map[*watcher]bool{}}
	if cfg != nil {
		s.cfg = *cfg
	}
	return &Engine{store: s}
}

// Client returns another client of the same store: what another process is to a
// server. The switches that name a client act on that client alone.
func (e *Engine) Client() *Engine { return &Engine{store: e.store} }

// Traits promises everything.
func (e *Engine) Traits() driver.Traits {
	return driver.Traits{Engine: "memory", Leased: true, Order: driver.OrderAll, Limits: true, Rates: true, MaxTTL: e.store.cfg.MaxTTL}
}

// Acquire makes one acquisition; see [driver.Engine]. A request whose limit
// differs from that of the shared holders or waiters is driver.ErrInvalid.
func (e *Engine) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	c, err := e.claim(req)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return driver.Grant{}, err
	}
	err = e.call(ctx, func(now time.Time) error {
		l := e.store.lock(req.Name, now)
		defer e.store.settle(l, now)
		return e.store.admit(l, c, now)
	})
	switch {
	case err == nil && !c.granted():
		return e.wait(ctx, c)
	case err != nil && req.Wait:
		err = c.heard.Ended(ctx, err)
	}
	return c.grant, err
}

// claim checks a request and gives it an owner.
func (e *Engine) claim(req driver.Request) (*claim, error) {
	if err := req.Check(e.Traits()); err != nil {
		return nil, err
	}
	owner, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("%w: no owner: %w", driver.ErrUnavailable, err)
	}
	return &claim{client: e, req: req, owner: owner.String(), wake: newBell()}, nil
}

// wait blocks until the claim is granted and confirmed, or ctx ends.
func (e *Engine) wait(ctx context.Context, c *claim) (driver.Grant, error) {
	answered := false
	defer func() {
		if !answered { // Waiting panicked
			e.abandon(c)
		}
	}()
	var last driver.WaitInfo
	for first := true; ; first = false {
		info := last
		var err error
		e.do(func(now time.Time) {
			l := e.store.lock(c.req.Name, now)
			defer e.store.settle(l, now)
			err = e.store.proceed(ctx, l, c, now)
			if first || c.req.Follow {
				info = driver.WaitInfo{Position: l.position(c), Held: l.inWay(c, now)}
			}
		})
		if err != nil || c.granted() {
			answered = true
			return c.grant, err
		}
		if c.req.OnWait != nil && (first || info.Position != last.Position) {
			c.req.OnWait(info)
		}
		last = info
		select {
		case <-c.wake:
		case <-ctx.Done():
		}
	}
}

// abandon takes a waiting claim away, whose caller is gone.
func (e *Engine) abandon(c *claim) {
	e.do(func(now time.Time) {
		l := e.store.lock(c.req.Name, now)
		defer e.store.settle(l, now)
		e.store.withdraw(l, c, now)
	})
}

// Renew extends acquisitions to a full TTL from now. One that expired, was
// broken or was released is driver.ErrNotHeld.
func (e *Engine) Renew(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	err := e.call(ctx, func(now time.Time) error {
		for i, lease := range leases {
			errs[i] = e.store.renew(lease, now)
		}
		return nil
	})
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

// Release ends an acquisition and hands the name to the next waiter.
func (e *Engine) Release(ctx context.Context, lease driver.Lease) error {
	return e.call(ctx, func(now time.Time) error {
		l := e.store.lock(lease.Name, now)
		defer e.store.settle(l, now)
		c, err := l.holder(lease)
		if err == nil {
			e.store.end(l, c, driver.EventReleased, now)
		}
		return err
	})
}
