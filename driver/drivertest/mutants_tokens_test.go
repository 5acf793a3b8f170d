package drivertest_test

import (
	"context"
	"errors"

	"github.com/fencelock/fencelock/driver"
)

// tokens are engines that are wrong about fencing tokens and breaks.
var tokens = []mutant{
	{"renew forgets to check", "break", func(b *broken) {
		b.renews(func(ctx context.Context, l driver.Lease) error {
			if err := b.renewOne(ctx, l); !errors.Is(err, driver.ErrNotHeld) {
				return err
			}
			return nil
		})
	}},
	{"tokens start over after a restart", "token-increasing", func(b *broken) {
		b.forge(func(real int64) int64 {
			b.world.mu.Lock()
			defer b.world.mu.Unlock()
			return real - b.world.restarts*1_000_000_000
		})
	}},
	{"tokens are used twice", "token-increasing", func(b *broken) {
		b.forge(func(real int64) int64 { return real / 2 })
	}},
	{"tokens fall after a break", "break", func(b *broken) {
		b.forge(func(real int64) int64 {
			b.world.mu.Lock()
			defer b.world.mu.Unlock()
			return real - b.world.breaks*1_000
		})
		b.brk = func(ctx context.Context, name, reason string) (int64, error) {
			b.world.mu.Lock()
			b.world.breaks++
			b.world.mu.Unlock()
			return b.process.Break(ctx, name, reason)
		}
	}},
	{"break mints the old token", "break", func(b *broken) {
		b.brk = func(ctx context.Context, name, reason string) (int64, error) {
			h, _ := b.holder(ctx, name)
			_, err := b.process.Break(ctx, name, reason)
			return h.Token, err
		}
	}},
	{"renew changes the token", "token-constant", func(b *broken) {
		b.translate()
		b.renews(func(ctx context.Context, l driver.Lease) error {
			if err := b.process.Release(ctx, b.real(l)); err != nil {
				return err
			}
			g, err := b.process.Acquire(ctx, driver.Request{Name: l.Name, Mode: l.Mode, TTL: l.TTL})
			b.remember(l.Owner, driver.Lease{Name: l.Name, Owner: g.Owner, Token: g.Token, Mode: l.Mode, TTL: l.TTL})
			return err
		})
	}},
	{"floor is the own token", "floor", func(b *broken) {
		b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			g, err := b.process.Acquire(ctx, req)
			g.Floor = g.Token
			return g, err
		}
	}},
	{"breaks in silence", "lost-callback", func(b *broken) {
		b.ask(func(req *driver.Request) { req.OnLost = nil })
	}},
	{"a break looks like a loss of data", "lost-callback", func(b *broken) {
		b.ask(func(req *driver.Request) {
			if told := req.OnLost; told != nil {
				req.OnLost = func(error) { told(driver.ErrLost) }
			}
		})
	}},
	{"tells of a loss twice", "lost-callback", func(b *broken) {
		b.ask(func(req *driver.Request) {
			if told := req.OnLost; told != nil {
				req.OnLost = func(cause error) { told(cause); told(cause) }
			}
		})
	}},
}
