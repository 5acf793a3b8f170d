package drivertest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/drivertest"
	"github.com/fencelock/fencelock/memlock"
)

// broken is a client of a memlock with some of its methods replaced.
type broken struct {
	process
	world   *brokenStore
	acquire func(context.Context, driver.Request) (driver.Grant, error)
	renew   func(context.Context, []driver.Lease) []error
	release func(context.Context, driver.Lease) error
	list    func(context.Context, driver.Query) ([]driver.Status, error)
	brk     func(context.Context, string, string) (int64, error)
	one     func(ctx context.Context, name, owner, reason string) (int64, error)
	adopt   func(context.Context, driver.Lease, driver.Request) (driver.Grant, error)
	resize  func(context.Context, string, int) error
	records brokenRecords
	take    func(context.Context, driver.RateTake) (driver.RateTaken, error)
	ret     func(context.Context, driver.RateTake, driver.RateTaken) error
	reset   func(context.Context, string) error
	ctx     context.Context // ends with Close
	close   func()
}

func (b *broken) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if b.ctx.Err() != nil {
		return driver.Grant{}, driver.ErrUnavailable
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	g, err := b.acquire(ctx, req)
	if b.ctx.Err() != nil && err != nil {
		err = driver.ErrUnavailable
	}
	return g, err
}

func (b *broken) Close() error {
	b.close()
	return nil
}

func (b *broken) Renew(ctx context.Context, ls []driver.Lease) []error  { return b.renew(ctx, ls) }
func (b *broken) Release(ctx context.Context, lease driver.Lease) error { return b.release(ctx, lease) }
func (b *broken) List(ctx context.Context, q driver.Query) ([]driver.Status, error) {
	return b.list(ctx, q)
}
func (b *broken) Break(ctx context.Context, name, reason string) (int64, error) {
	return b.brk(ctx, name, reason)
}
func (b *broken) BreakOwner(ctx context.Context, name, owner, reason string) (int64, error) {
	return b.one(ctx, name, owner, reason)
}
func (b *broken) Adopt(ctx context.Context, lease driver.Lease, req driver.Request) (driver.Grant, error) {
	return b.adopt(ctx, lease, req)
}
func (b *broken) Resize(ctx context.Context, name string, limit int) error {
	return b.resize(ctx, name, limit)
}
func (b *broken) TakeRate(ctx context.Context, take driver.RateTake) (driver.RateTaken, error) {
	return b.take(ctx, take)
}
func (b *broken) ReturnRate(ctx context.Context, take driver.RateTake, taken driver.RateTaken) error {
	return b.ret(ctx, take, taken)
}
func (b *broken) ResetRate(ctx context.Context, key string) error { return b.reset(ctx, key) }

func (b *broken) Records() driver.Records { return &b.records }

// renewOne renews one lease in the unbroken engine.
func (b *broken) renewOne(ctx context.Context, lease driver.Lease) error {
	return b.process.Renew(ctx, []driver.Lease{lease})[0]
}

// status returns what memlock lists under a name.
func (b *broken) status(ctx context.Context, name string) driver.Status {
	list, err := b.process.List(ctx, driver.Query{Prefix: name, Exact: true})
	if err != nil || len(list) == 0 {
		return driver.Status{}
	}
	return list[0]
}

// holder returns the oldest holder of a name.
func (b *broken) holder(ctx context.Context, name string) (driver.Holder, bool) {
	holders := b.status(ctx, name).Holders
	if len(holders) == 0 {
		return driver.Holder{}, false
	}
	return holders[0], true
}

// restore closes a free name by a minimum hold.
func (b *broken) restore(ctx context.Context, name string, least time.Duration) {
	g, err := b.process.Acquire(ctx, driver.Request{Name: name, TTL: time.Second, MinHold: least})
	if err == nil {
		b.process.Release(ctx, driver.Lease{Name: name, Owner: g.Owner, Token: g.Token})
	}
}

// poll waits without a queue: it tries again and again, when its turn says so.
func (b *broken) poll(ctx context.Context, req driver.Request, pause time.Duration, turn func() bool) (driver.Grant, error) {
	if req.OnWait != nil {
		req.OnWait(driver.WaitInfo{})
	}
	req.Wait = false
	for ctx.Err() == nil {
		if turn() {
			if g, err := b.process.Acquire(ctx, req); err == nil {
				return g, nil
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return driver.Grant{}, errors.Join(&driver.HeldError{Name: req.Name}, ctx.Err())
}

// brokenStore is a world of broken clients. It has room for what they share.
type brokenStore struct {
	engine *memlock.Engine
	infect func(*broken)
	ctx    context.Context // ends with the test

	mu       sync.Mutex // guards all below
	clients  int
	restarts int64
	breaks   int64
	stack    []*driver.Request       // the waiters of a queue that is none, oldest first
	real     map[string]driver.Lease // owners to what memlock knows
	limits   map[string]int          // what clients think was the last Resize of a name
	heavy    map[string]int          // how many heavy waiters of a name are in no queue
	cut      chan struct{}           // closed by the next Cut
}

func (s *brokenStore) Restart(testing.TB) {
	s.engine.Restart()
	s.mu.Lock()
	s.restarts++
	s.mu.Unlock()
}

func (s *brokenStore) Cut(testing.TB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engine.Hang()
	close(s.cut)
	s.cut = make(chan struct{})
}

func (s *brokenStore) Mend(testing.TB) { s.engine.Resume() }

func (s *brokenStore) Client(testing.TB) drivertest.Client {
	s.mu.Lock()
	s.clients++
	s.mu.Unlock()
	return s.client()
}

// client returns a broken client.
func (s *brokenStore) client() *broken {
	p := process{s.engine.Client()}
	b := &broken{process: p, world: s, acquire: p.Acquire, renew: p.Renew, release: p.Release, list: p.List, brk: p.Break, one: p.BreakOwner, adopt: p.Adopt,
		resize: p.Resize, records: unbroken(p.Engine.Records()), take: p.TakeRate, ret: p.ReturnRate, reset: p.ResetRate}
	b.ctx, b.close = context.WithCancel(s.ctx)
	s.infect(b)
	return b
}

// suiteOf returns the suite for an engine broken by infect.
func suiteOf(infect func(*broken)) drivertest.Suite {
	return drivertest.Suite{Bubble: true, World: func(t testing.TB) drivertest.World {
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		return &brokenStore{engine: memlock.New(nil), infect: infect, ctx: ctx,
			real: map[string]driver.Lease{}, limits: map[string]int{}, heavy: map[string]int{}, cut: make(chan struct{})}
	}}
}

// forge shows the outside other tokens than memlock's.
func (b *broken) forge(token func(real int64) int64) {
	b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
		g, err := b.process.Acquire(ctx, req)
		if err == nil {
			real := driver.Lease{Name: req.Name, Owner: g.Owner, Token: g.Token, Mode: req.Mode, TTL: req.TTL}
			b.remember(g.Owner, real)
			g.Token = token(g.Token)
			g.Floor = min(g.Token, token(g.Floor))
		}
		return g, err
	}
	b.translate()
}

// remember notes what memlock knows of an owner.
func (b *broken) remember(owner string, real driver.Lease) {
	b.world.mu.Lock()
	defer b.world.mu.Unlock()
	b.world.real[owner] = real
}

// real returns what memlock knows of a lease.
func (b *broken) real(l driver.Lease) driver.Lease {
	b.world.mu.Lock()
	defer b.world.mu.Unlock()
	if real, ok := b.world.real[l.Owner]; ok {
		return real
	}
	return l
}

// translate renews and releases what memlock knows of a lease.
func (b *broken) translate() {
	b.release = func(ctx context.Context, l driver.Lease) error { return b.process.Release(ctx, b.real(l)) }
	b.renew = func(ctx context.Context, ls []driver.Lease) []error {
		real := make([]driver.Lease, len(ls))
		for i, l := range ls {
			real[i] = b.real(l)
		}
		return b.process.Renew(ctx, real)
	}
}

// ask replaces how a client acquires by a change to its requests.
func (b *broken) ask(change func(*driver.Request)) {
	b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
		change(&req)
		return b.process.Acquire(ctx, req)
	}
}

// rename keeps the locks of a client under other names.
func (b *broken) rename(name func(string, driver.Mode) string) {
	b.ask(func(req *driver.Request) { req.Name = name(req.Name, req.Mode) })
	b.release = func(ctx context.Context, l driver.Lease) error {
		l.Name = name(l.Name, l.Mode)
		return b.process.Release(ctx, l)
	}
	b.renew = func(ctx context.Context, ls []driver.Lease) []error {
		other := make([]driver.Lease, len(ls))
		for i, l := range ls {
			l.Name = name(l.Name, l.Mode)
			other[i] = l
		}
		return b.process.Renew(ctx, other)
	}
}

// waits replaces how a client waits.
func (b *broken) waits(wait func(context.Context, driver.Request) (driver.Grant, error)) {
	b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
		if !req.Wait {
			return b.process.Acquire(ctx, req)
		}
		return wait(ctx, req)
	}
}

// renews replaces how a client renews one lease.
func (b *broken) renews(renew func(context.Context, driver.Lease) error) {
	b.renew = func(ctx context.Context, ls []driver.Lease) []error {
		errs := make([]error, len(ls))
		for i, l := range ls {
			errs[i] = renew(ctx, l)
		}
		return errs
	}
}

// stay waits on when ctx ends and nobody wants the grant any more.
func (b *broken) stay(ctx context.Context, req driver.Request) (driver.Grant, error) {
	granted := make(chan driver.Grant, 1)
	go func() { // ends when granted, at the latest with the test
		if g, err := b.process.Acquire(b.world.ctx, req); err == nil {
			granted <- g
		}
	}()
	select {
	case g := <-granted:
		return g, nil
	case <-ctx.Done():
		return driver.Grant{}, errors.Join(&driver.HeldError{Name: req.Name}, ctx.Err())
	}
}

// proxy waits as another client, which cannot be frozen or killed, and returns
// once this one runs.
func (b *broken) proxy(ctx context.Context, req driver.Request) (driver.Grant, error) {
	g, err := b.world.engine.Client().Acquire(ctx, req)
	b.process.Renew(b.world.ctx, nil) // blocks while frozen
	return g, err
}
