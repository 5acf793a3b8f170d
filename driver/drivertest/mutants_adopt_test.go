package drivertest_test

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// adopting are engines that are wrong about acquisitions that pass to another client.
var adopting = []mutant{
	{"releases and acquires", "adopt", func(b *broken) {
		b.adopt = func(ctx context.Context, l driver.Lease, req driver.Request) (driver.Grant, error) {
			if err := b.process.Release(ctx, l); err != nil {
				return driver.Grant{}, err
			}
			req.Wait = true // the waiter in the queue gets it first
			return b.process.Acquire(ctx, req)
		}
	}},
	{"keeps the token", "adopt", func(b *broken) {
		b.adopts(func(l driver.Lease, g *driver.Grant) { g.Token, g.Floor = l.Token, l.Token })
	}},
	{"keeps the owner", "adopt", func(b *broken) {
		b.adopts(func(l driver.Lease, g *driver.Grant) { g.Owner = l.Owner })
	}},
	{"the first holder renews on", "adopt", func(b *broken) {
		b.adopt = func(ctx context.Context, l driver.Lease, req driver.Request) (driver.Grant, error) {
			g, err := b.process.Adopt(ctx, l, req)
			if err == nil {
				b.remember(l.Owner, driver.Lease{Name: l.Name, Owner: g.Owner, Token: g.Token, Mode: l.Mode, TTL: l.TTL})
			}
			return g, err
		}
		b.translate()
	}},
	{"adopts who holds now", "adopt-ended", func(b *broken) {
		b.adopt = func(ctx context.Context, l driver.Lease, req driver.Request) (driver.Grant, error) {
			if h, ok := b.holder(ctx, l.Name); ok {
				l.Owner, l.Token = h.Owner, h.Token
			}
			return b.process.Adopt(ctx, l, req)
		}
	}},
	{"adopts what is free", "adopt-ended", func(b *broken) {
		b.adopt = func(ctx context.Context, l driver.Lease, req driver.Request) (driver.Grant, error) {
			g, err := b.process.Adopt(ctx, l, req)
			if errors.Is(err, driver.ErrNotHeld) {
				if free, freeErr := b.process.Acquire(ctx, req); freeErr == nil {
					return free, nil
				}
			}
			return g, err
		}
	}},
	{"adopts in two steps", "adopt-race", func(b *broken) {
		b.adopt = func(ctx context.Context, l driver.Lease, req driver.Request) (driver.Grant, error) {
			h, ok := b.holder(ctx, l.Name)
			if !ok || h.Owner != l.Owner {
				return b.process.Adopt(ctx, l, req)
			}
			time.Sleep(time.Second) // in the bubble: until all have looked
			if h, ok = b.holder(ctx, l.Name); ok {
				l.Owner, l.Token = h.Owner, h.Token
			}
			return b.process.Adopt(ctx, l, req)
		}
	}},
	{"replaces all who share", "adopt-shared", func(b *broken) {
		b.adopt = func(ctx context.Context, l driver.Lease, req driver.Request) (driver.Grant, error) {
			g, err := b.process.Adopt(ctx, l, req)
			for _, h := range b.status(ctx, l.Name).Holders {
				if err == nil && h.Owner != g.Owner {
					b.process.Release(ctx, driver.Lease{Name: l.Name, Owner: h.Owner, Token: h.Token, Mode: l.Mode})
				}
			}
			return g, err
		}
	}},
	{"adopts with any weight", "adopt-shared", func(b *broken) {
		b.adopt = func(ctx context.Context, l driver.Lease, req driver.Request) (driver.Grant, error) {
			for _, h := range b.status(ctx, l.Name).Holders {
				if req.Limit > 0 && h.Owner == l.Owner {
					req.Weight = h.Weight
				}
			}
			return b.process.Adopt(ctx, l, req)
		}
	}},
	{"ends the minimum hold", "adopt-min-hold", func(b *broken) {
		b.adopt = func(ctx context.Context, l driver.Lease, req driver.Request) (driver.Grant, error) {
			if _, err := b.process.BreakOwner(ctx, l.Name, l.Owner, "adopted"); err != nil {
				return driver.Grant{}, err
			}
			return b.process.Acquire(ctx, req)
		}
	}},
	{"adopts in another mode", "adopt-input", func(b *broken) {
		b.adopt = func(ctx context.Context, l driver.Lease, req driver.Request) (driver.Grant, error) {
			req.Mode = l.Mode
			return b.process.Adopt(ctx, l, req)
		}
	}},
	{"adopts for a caller that is gone", "adopt-input", func(b *broken) {
		b.adopt = func(ctx context.Context, l driver.Lease, req driver.Request) (driver.Grant, error) {
			return b.process.Adopt(context.WithoutCancel(ctx), l, req)
		}
	}},
}

// adopts changes the grants of adoptions.
func (b *broken) adopts(change func(driver.Lease, *driver.Grant)) {
	b.adopt = func(ctx context.Context, l driver.Lease, req driver.Request) (driver.Grant, error) {
		g, err := b.process.Adopt(ctx, l, req)
		if err == nil {
			b.remember(g.Owner, driver.Lease{Name: l.Name, Owner: g.Owner, Token: g.Token, Mode: l.Mode, TTL: req.TTL})
			change(l, &g)
		}
		return g, err
	}
}
