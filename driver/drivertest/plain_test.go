package drivertest_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/memlock"
)

// forever is the lease of an engine that has none.
const forever = driver.MaxDuration

// faults are what can be wrong with a plain engine.
type faults struct {
	ghosts  bool // locks outlive their client
	crowded bool // all waiters of a client queue at once
	lax     bool // limits are ignored
}

// plain is a client of a memlock that promises less: no leases, no limits, and
// an order between processes only.
type plain struct {
	process
	faults
	heir   driver.Engine // releases the locks of a dead client
	mu     sync.Mutex    // guards turns, leases, dead
	turns  map[string]chan struct{}
	leases map[string]driver.Lease // by owner
	dead   bool
}

func (p *plain) Traits() driver.Traits {
	return driver.Traits{Engine: "plain", Order: driver.OrderProcess}
}

func (p *plain) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := req.Check(p.Traits()); err != nil && !(p.lax && errors.Is(err, driver.ErrUnsupported)) {
		return driver.Grant{}, err
	}
	if req.Wait && !p.crowded {
		leave, err := p.turn(ctx, req)
		if err != nil {
			return driver.Grant{}, err
		}
		defer leave()
	}
	req.TTL, req.Limit = forever, 0
	g, err := p.process.Acquire(ctx, req)
	if err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		l := driver.Lease{Name: req.Name, Owner: g.Owner, Token: g.Token, Mode: req.Mode}
		if p.leases[g.Owner] = l; p.dead {
			p.free(l)
		}
	}
	return g, err
}

// turn waits until no other request of this client waits for the name.
func (p *plain) turn(ctx context.Context, req driver.Request) (leave func(), err error) {
	p.mu.Lock()
	turn := p.turns[req.Name]
	if turn == nil {
		turn = make(chan struct{}, 1)
		p.turns[req.Name] = turn
	}
	p.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	default:
	}
	if req.OnWait != nil {
		req.OnWait(driver.WaitInfo{})
	}
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, errors.Join(&driver.HeldError{Name: req.Name}, ctx.Err())
	}
}

func (p *plain) Resize(context.Context, string, int) error {
	if p.lax {
		return nil
	}
	return driver.ErrUnsupported
}

func (p *plain) List(ctx context.Context, q driver.Query) ([]driver.Status, error) {
	list, err := p.process.List(ctx, q)
	for _, s := range list {
		for i := range s.Holders {
			s.Holders[i].TTL, s.Holders[i].Lease = 0, 0
		}
	}
	return list, err
}

func (p *plain) Kill(t testing.TB) {
	p.process.Kill(t) // after it nothing is granted to this client
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
	for _, l := range p.leases {
		p.free(l)
	}
}

// free releases a lock of a dead client.
func (p *plain) free(l driver.Lease) {
	if !p.ghosts {
		_ = p.heir.Release(context.Background(), l) // it may be released already
	}
}

// plainStore is a world of plain clients.
type plainStore struct {
	store
	faults
}

func (s plainStore) Client(testing.TB) drivertest.Client {
	return &plain{process: process{s.Engine.Client()}, faults: s.faults, heir: s.Engine.Client(),
		turns: map[string]chan struct{}{}, leases: map[string]driver.Lease{}}
}

func plainExam(f faults) drivertest.Suite {
	return drivertest.Suite{Bubble: true, World: func(testing.TB) drivertest.World {
		return plainStore{store{memlock.New(nil)}, f}
	}}
}

// TestPlain runs the conformance suite on an engine without leases and limits.
func TestPlain(t *testing.T) { drivertest.Run(t, plainExam(faults{})) }

// TestPlainMutants is TestMutants for what only a plain engine can do wrong.
func TestPlainMutants(t *testing.T) {
	for _, m := range []struct {
		name, fails string
		faults      faults
	}{
		{"locks outlive their client", "crash-frees", faults{ghosts: true}},
		{"a client has many turns", "order-process", faults{crowded: true}},
		{"limits are ignored", "limit-unsupported", faults{lax: true}},
	} {
		t.Run(m.name, func(t *testing.T) { mustFail(t, m.fails, plainExam(m.faults)) })
	}
}

// An engine that stores no notes has no traces to show, and is not asked for them.
func TestWithoutNotesNoTraces(t *testing.T) {
	e := suiteOf(func(b *broken) { b.ask(func(req *driver.Request) { req.Note, req.Trace = "", "" }) })
	for _, c := range drivertest.Cases() {
		if c.Name != "trace" {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			failures, skipped := drivertest.Collect(t, func(t testing.TB) { e.Put(t, c) })
			if len(failures) > 0 || !strings.Contains(skipped, "no notes") {
				t.Errorf("skipped because %q, failures %q", skipped, failures)
			}
		})
	}
}
