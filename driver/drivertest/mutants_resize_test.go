package drivertest_test

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// resizing are engines that are wrong about limits that change.
var resizing = []mutant{
	{"resize is ignored", "resize", func(b *broken) {
		b.resize = func(ctx context.Context, name string, limit int) error { return driver.CheckResize(name, limit) }
	}},
	{"resize takes any limit", "resize", func(b *broken) {
		b.resize = func(ctx context.Context, name string, limit int) error {
			return b.process.Resize(ctx, name, max(limit, 1))
		}
	}},
	{"resize is forgotten when the name is free", "resize-lasts", func(b *broken) {
		b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if s := b.status(ctx, req.Name); len(s.Holders)+len(s.Waiters) == 0 {
				b.process.Resize(ctx, req.Name, max(req.Limit, 1))
			}
			return b.process.Acquire(ctx, req)
		}
	}},
	{"resize is forgotten in a restart", "resize-lasts", func(b *broken) {
		b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			b.world.mu.Lock()
			forgotten := b.world.restarts > 0
			b.world.mu.Unlock()
			if forgotten && req.Limit > 0 {
				b.process.Resize(ctx, req.Name, req.Limit)
			}
			return b.process.Acquire(ctx, req)
		}
	}},
	{"resize is forgotten in a break", "resize-lasts", func(b *broken) {
		b.brk = func(ctx context.Context, name, reason string) (int64, error) {
			token, err := b.process.Break(ctx, name, reason)
			return token, errors.Join(err, b.process.Resize(ctx, name, 3))
		}
	}},
	{"resize goes on when its context has ended", "resize", func(b *broken) {
		b.resize = func(ctx context.Context, name string, limit int) error {
			return errors.Join(b.process.Resize(context.WithoutCancel(ctx), name, limit), ctx.Err())
		}
	}},
	{"resize down lets one more in", "resize", func(b *broken) {
		b.resize = func(ctx context.Context, name string, limit int) error {
			if b.status(ctx, name).Limit > limit && limit > 0 {
				limit++
			}
			return b.process.Resize(ctx, name, limit)
		}
	}},
	{"resize down throws holders out", "resize", func(b *broken) {
		b.resize = func(ctx context.Context, name string, limit int) error {
			if len(b.status(ctx, name).Holders) > max(limit, 1) {
				b.process.Break(ctx, name, "too many")
			}
			return b.process.Resize(ctx, name, limit)
		}
	}},
	{"resize up wakes nobody", "resize", func(b *broken) {
		b.resize = func(ctx context.Context, name string, limit int) error {
			if s := b.status(ctx, name); len(s.Waiters) == 0 || limit <= s.Limit {
				return b.process.Resize(ctx, name, limit)
			}
			b.resized(name, limit)
			return nil
		}
		b.release = func(ctx context.Context, l driver.Lease) error {
			if limit := b.resized(l.Name, 0); limit > 0 {
				b.process.Resize(ctx, l.Name, limit)
			}
			return b.process.Release(ctx, l)
		}
	}},
	{"resize wakes one", "resize", func(b *broken) {
		b.resize = func(ctx context.Context, name string, limit int) error {
			s := b.status(ctx, name)
			if n := len(s.Holders); len(s.Waiters) > 1 && limit > n+1 {
				limit = n + 1
			}
			return b.process.Resize(ctx, name, limit)
		}
	}},
	{"requests ask with the new limit or fail", "resize", func(b *broken) {
		b.resize = func(ctx context.Context, name string, limit int) error {
			b.resized(name, limit)
			return b.process.Resize(ctx, name, limit)
		}
		b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if limit := b.resized(req.Name, 0); limit > 0 && req.Limit > 0 && req.Limit != limit {
				return driver.Grant{}, driver.ErrInvalid
			}
			return b.process.Acquire(ctx, req)
		}
	}},
	{"heavier than the limit is never", "resize", func(b *broken) {
		b.resize = func(ctx context.Context, name string, limit int) error {
			b.resized(name, limit)
			return b.process.Resize(ctx, name, limit)
		}
		b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if limit := b.resized(req.Name, 0); limit > 0 && req.Weight > limit && req.Wait {
				return b.poll(ctx, req, time.Second, func() bool { return false })
			}
			return b.process.Acquire(ctx, req)
		}
	}},
	{"heavier than the limit is cut to it", "resize", func(b *broken) {
		b.resize = func(ctx context.Context, name string, limit int) error {
			b.resized(name, limit)
			return b.process.Resize(ctx, name, limit)
		}
		b.ask(func(req *driver.Request) {
			if limit := b.resized(req.Name, 0); limit > 0 && req.Weight > limit {
				req.Weight = limit - 1
			}
		})
	}},
}

// resized notes a new limit, unless it is 0, and returns the last one.
func (b *broken) resized(name string, limit int) int {
	b.world.mu.Lock()
	defer b.world.mu.Unlock()
	if limit > 0 {
		b.world.limits[name] = limit
	}
	return b.world.limits[name]
}
