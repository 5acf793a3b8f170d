package drivertest_test

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// weighing are engines that are wrong about weights.
var weighing = []mutant{
	{"the greatest weights are none", "weights", func(b *broken) {
		b.ask(func(req *driver.Request) { req.Weight %= driver.MaxLimit })
	}},
	{"weights are ignored", "weights", func(b *broken) {
		b.ask(func(req *driver.Request) { req.Weight = 0 })
	}},
	{"every weight is heavy", "weights", func(b *broken) {
		b.ask(func(req *driver.Request) {
			if req.Limit > 0 {
				req.Weight = min(req.Limit, req.Units()+1)
			}
		})
	}},
	{"one unit comes back", "weights", func(b *broken) {
		b.release = func(ctx context.Context, l driver.Lease) error {
			s := b.status(ctx, l.Name)
			for _, h := range s.Holders {
				if h.Owner == l.Owner && h.Weight > 1 {
					b.process.Resize(ctx, l.Name, max(1, s.Limit-h.Weight+1))
				}
			}
			return b.process.Release(ctx, l)
		}
	}},
	{"the units of the dead are lost", "weights", func(b *broken) {
		b.ask(func(req *driver.Request) {
			if req.Weight > 1 {
				req.TTL *= 1000
			}
		})
	}},
	{"lists no weights", "weights", func(b *broken) {
		b.list = func(ctx context.Context, q driver.Query) ([]driver.Status, error) {
			list, err := b.process.List(ctx, q)
			for _, s := range list {
				for i := range s.Waiters {
					s.Waiters[i].Weight = 0
				}
			}
			return list, err
		}
	}},
	{"lowers a weight above the limit", "bad-input", func(b *broken) {
		b.ask(func(req *driver.Request) {
			if req.Limit > 0 {
				req.Weight = min(req.Weight, req.Limit)
			}
		})
	}},
	{"the light pass the heavy", "weight-not-passed", func(b *broken) {
		b.waits(func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if req.Weight <= 1 {
				return b.process.Acquire(ctx, req)
			}
			return b.poll(ctx, req, time.Second, always)
		})
	}},
	{"light waiters pass the heavy", "weight-not-passed", func(b *broken) {
		b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			switch {
			case req.Wait && req.Weight > 1:
				b.waitsHeavily(req.Name, 1)
				defer b.waitsHeavily(req.Name, -1)
				return b.poll(ctx, req, time.Second, always)
			case !req.Wait && b.waitsHeavily(req.Name, 0) > 0:
				return driver.Grant{}, &driver.HeldError{Name: req.Name}
			}
			return b.process.Acquire(ctx, req)
		}
	}},
	{"the heavy keep their places when they give up", "weight-not-passed", func(b *broken) {
		b.waits(func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if req.Weight <= 1 {
				return b.process.Acquire(ctx, req)
			}
			return b.stay(ctx, req)
		})
	}},
}

// waitsHeavily counts the heavy waiters of a name.
func (b *broken) waitsHeavily(name string, more int) int {
	b.world.mu.Lock()
	defer b.world.mu.Unlock()
	b.world.heavy[name] += more
	return b.world.heavy[name]
}
