package drivertest_test

import (
	"context"
	"slices"
	"sync"

	"github.com/fencelock/fencelock/driver"
)

// joining are engines that are wrong about a client with several names.
var joining = []mutant{
	{"a client holds one name at most", "sets", func(b *broken) {
		mine := b.leases()
		acquire := b.acquire
		b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if all := mine(); len(all) > 0 && all[0].Name != req.Name {
				return driver.Grant{}, &driver.HeldError{Name: req.Name}
			}
			return acquire(ctx, req)
		}
	}},
	{"a release frees all names of its client", "sets", func(b *broken) {
		mine := b.leases()
		release := b.release
		b.release = func(ctx context.Context, lease driver.Lease) error {
			for _, l := range mine() {
				if l.Owner != lease.Owner {
					_ = b.process.Release(ctx, l)
				}
			}
			return release(ctx, lease)
		}
	}},
	{"breaks all names of a holder", "sets", func(b *broken) {
		b.brk = func(ctx context.Context, name, reason string) (int64, error) {
			list, err := b.process.List(ctx, driver.Query{})
			for _, s := range list {
				if s.Name != name {
					_, _ = b.process.Break(ctx, s.Name, reason)
				}
			}
			if err != nil {
				return 0, err
			}
			return b.process.Break(ctx, name, reason)
		}
	}},
	{"the second name of a client outlives it", "sets", func(b *broken) {
		mine := b.leases()
		acquire := b.acquire
		b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if len(mine()) > 0 {
				req.TTL *= 1000
			}
			return acquire(ctx, req)
		}
	}},
}

// leases notes what a client acquires and releases, and returns what tells what it has.
func (b *broken) leases() func() []driver.Lease {
	var mu sync.Mutex // guards all
	var all []driver.Lease
	b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
		g, err := b.process.Acquire(ctx, req)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, driver.Lease{Name: req.Name, Owner: g.Owner, Token: g.Token, Mode: req.Mode, TTL: req.TTL})
		}
		return g, err
	}
	b.release = func(ctx context.Context, lease driver.Lease) error {
		err := b.process.Release(ctx, lease)
		mu.Lock()
		defer mu.Unlock()
		all = slices.DeleteFunc(all, func(l driver.Lease) bool { return l.Owner == lease.Owner })
		return err
	}
	return func() []driver.Lease {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}
