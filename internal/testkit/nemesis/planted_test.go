//go:build linux

package nemesis_test

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// planted are wrong engines, made of right ones, by what is wrong with them. The
// nemesis must find each.
var planted = map[string]func(driver.Engine) driver.Engine{
	"":       func(e driver.Engine) driver.Engine { return e },
	"double": func(e driver.Engine) driver.Engine { return double{e} },
	"deaf":   func(e driver.Engine) driver.Engine { return deaf{e} },
	"swap":   func(e driver.Engine) driver.Engine { return &swap{Engine: e, last: map[string]int64{}} },
	"early":  func(e driver.Engine) driver.Engine { return early{e} },
	"lazy":   func(e driver.Engine) driver.Engine { return lazy{e} },
	"name":   func(e driver.Engine) driver.Engine { return &byName{Engine: e, last: map[string]driver.Lease{}} },
}

// double believes in a lease twice as long as the one it has.
type double struct{ driver.Engine }

func (d double) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.TTL /= 2
	g, err := d.Engine.Acquire(ctx, req)
	g.TTL *= 2
	return g, err
}

func (d double) Renew(ctx context.Context, leases []driver.Lease) []error {
	half := make([]driver.Lease, len(leases))
	for i, l := range leases {
		half[i] = l
		half[i].TTL /= 2
	}
	return d.Engine.Renew(ctx, half)
}

func (d double) Release(ctx context.Context, l driver.Lease) error {
	l.TTL /= 2
	return d.Engine.Release(ctx, l)
}

// deaf hears of no loss, and takes every renewal for a good one.
type deaf struct{ driver.Engine }

func (d deaf) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.OnLost = nil
	return d.Engine.Acquire(ctx, req)
}

func (d deaf) Renew(ctx context.Context, leases []driver.Lease) []error {
	_ = d.Engine.Renew(ctx, leases)
	return make([]error, len(leases))
}

// early lets others in before a minimum hold is over.
type early struct{ driver.Engine }

func (e early) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.MinHold = 0
	return e.Engine.Acquire(ctx, req)
}

// lazy leaves the end of a released lock to its lease.
type lazy struct{ driver.Engine }

func (l lazy) Release(context.Context, driver.Lease) error { return nil }

// swap gives out the token of the acquisition before, now and then.
type swap struct {
	driver.Engine
	mu    sync.Mutex // guards last, turns
	last  map[string]int64
	turns int
}

func (s *swap) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	g, err := s.Engine.Acquire(ctx, req)
	if err != nil {
		return g, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns++
	right, before := g.Token, s.last[req.Name]
	if s.turns%10 == 0 && before != 0 {
		g.Token = before
	}
	s.last[req.Name] = right
	return g, nil
}

// byName releases whatever this process has under a name, and once more a little
// later, as one does that has had no answer.
type byName struct {
	driver.Engine
	mu   sync.Mutex // guards last
	last map[string]driver.Lease
}

func (b *byName) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	g, err := b.Engine.Acquire(ctx, req)
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.last[req.Name] = driver.Lease{Name: req.Name, Owner: g.Owner, Token: g.Token, Mode: req.Mode, TTL: req.TTL}
	}
	return g, err
}

func (b *byName) Release(ctx context.Context, l driver.Lease) error {
	err := b.Engine.Release(ctx, l)
	time.AfterFunc(3*time.Millisecond, func() {
		b.mu.Lock()
		last := b.last[l.Name]
		b.mu.Unlock()
		if last.Owner != l.Owner {
			_ = b.Engine.Release(context.Background(), last)
		}
	})
	return err
}
