package drivertest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/google/uuid"
)

// toy is what is least of an engine: leases in a map, shared and exclusive, minimum holds
// and tokens, without an order of waiters. It is what an author begins with.
type toy struct {
	mu        sync.Mutex // guards all below
	holders   map[string]map[string]*toyHold
	notBefore map[string]time.Time
	token     int64
	changed   chan struct{} // closed whenever a name may have become free
}

// toyHold is one acquisition.
type toyHold struct {
	driver.Lease
	driver.Identity
	since, until time.Time
}

func newToy() *toy {
	return &toy{holders: map[string]map[string]*toyHold{}, notBefore: map[string]time.Time{}, changed: make(chan struct{})}
}

func (e *toy) Traits() driver.Traits { return driver.Traits{Engine: "toy", Leased: true} }

func (e *toy) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := req.Check(e.Traits()); err != nil {
		return driver.Grant{}, err
	}
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	var heard driver.Waited
	for told := false; ; {
		g, held, changed := e.try(req)
		if held == nil {
			return g, nil
		}
		heard.Held(held)
		if !req.Wait {
			return g, held
		}
		if !told && req.OnWait != nil {
			told = true
			req.OnWait(driver.WaitInfo{Held: held})
		}
		again := time.NewTimer(time.Until(held.Until))
		select {
		case <-again.C: // a lease or a minimum hold may be over
		case <-changed:
		case <-ctx.Done():
			again.Stop()
			return g, heard.Ended(ctx, nil)
		}
		again.Stop()
	}
}

// try grants a request, or says who is in the way and when to ask again.
func (e *toy) try(req driver.Request) (g driver.Grant, held *driver.HeldError, changed <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	all := e.standing(req.Name, now)
	if until := e.notBefore[req.Name]; now.Before(until) {
		return g, &driver.HeldError{Name: req.Name, Until: until}, e.changed
	}
	for _, h := range all {
		if h.Mode == driver.Exclusive || req.Mode == driver.Exclusive {
			return g, &driver.HeldError{Name: req.Name, Owner: h.Owner, Identity: h.Identity, Since: h.since, Until: h.until}, e.changed
		}
	}
	e.token++
	h := &toyHold{Identity: req.Identity, since: now, until: now.Add(req.TTL),
		Lease: driver.Lease{Name: req.Name, Owner: uuid.NewString(), Token: e.token, Mode: req.Mode, TTL: req.TTL}}
	floor := h.Token
	for _, o := range all {
		floor = min(floor, o.Token)
	}
	if all == nil {
		all = map[string]*toyHold{}
		e.holders[req.Name] = all
	}
	all[h.Owner] = h
	if req.MinHold > 0 {
		e.notBefore[req.Name] = now.Add(req.MinHold)
	}
	return driver.Grant{Owner: h.Owner, Token: h.Token, Floor: floor, Sent: now, TTL: req.TTL}, nil, nil
}

// standing returns the holders of a name whose leases are not over.
func (e *toy) standing(name string, now time.Time) map[string]*toyHold {
	for owner, h := range e.holders[name] {
		if !now.Before(h.until) {
			delete(e.holders[name], owner)
		}
	}
	return e.holders[name]
}

func (e *toy) Renew(_ context.Context, leases []driver.Lease) []error {
	e.mu.Lock()
	defer e.mu.Unlock()
	errs := make([]error, len(leases))
	for i, l := range leases {
		if h := e.standing(l.Name, time.Now())[l.Owner]; h != nil && h.Token == l.Token {
			h.until = time.Now().Add(h.TTL)
		} else {
			errs[i] = fmt.Errorf("%w: %q", driver.ErrNotHeld, l.Name)
		}
	}
	return errs
}

func (e *toy) Release(_ context.Context, l driver.Lease) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h := e.standing(l.Name, time.Now())[l.Owner]; h == nil || h.Token != l.Token {
		return fmt.Errorf("%w: %q", driver.ErrNotHeld, l.Name)
	}
	delete(e.holders[l.Name], l.Owner)
	close(e.changed)
	e.changed = make(chan struct{})
	return nil
}

// toyWorld is one deployment of the toy: its clients are all the same engine.
type toyWorld struct{ *toy }

func (w toyWorld) Client(testing.TB) drivertest.Client { return &toyClient{toy: w.toy} }
func (w toyWorld) Restart(testing.TB)                  {}

// toyClient is one process that uses the toy, and can be stopped and killed.
type toyClient struct {
	*toy

	mu     sync.Mutex    // guards frozen, dead
	frozen chan struct{} // closed by Thaw; nil while the process runs
	dead   bool
}

// alive waits while the process is frozen, and says whether it was killed.
func (c *toyClient) alive() error {
	c.mu.Lock()
	frozen := c.frozen
	c.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return fmt.Errorf("%w: the process is dead", driver.ErrUnavailable)
	}
	return nil
}

func (c *toyClient) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := c.alive(); err != nil {
		return driver.Grant{}, err
	}
	return c.toy.Acquire(ctx, req)
}

func (c *toyClient) Renew(ctx context.Context, leases []driver.Lease) []error {
	if err := c.alive(); err != nil {
		errs := make([]error, len(leases))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	return c.toy.Renew(ctx, leases)
}

func (c *toyClient) Release(ctx context.Context, l driver.Lease) error {
	if err := c.alive(); err != nil {
		return err
	}
	return c.toy.Release(ctx, l)
}

func (c *toyClient) Kill(testing.TB) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
}

func (c *toyClient) Freeze(testing.TB) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen = make(chan struct{})
}

func (c *toyClient) Thaw(testing.TB) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.frozen)
	c.frozen = nil
}

// TestToy: a minimal engine passes the conformance suite.
func TestToy(t *testing.T) {
	drivertest.Run(t, drivertest.Suite{Bubble: true, World: func(testing.TB) drivertest.World {
		return toyWorld{newToy()}
	}})
}
