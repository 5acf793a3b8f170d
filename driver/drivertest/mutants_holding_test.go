package drivertest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// holding are engines that are wrong about who holds, until when, and who may release.
var holding = []mutant{
	{"one lock per client", "exclusion", func(b *broken) {
		suffix := fmt.Sprint("#", b.world.clients)
		b.rename(func(name string, _ driver.Mode) string { return name + suffix })
	}},
	{"re-entrant in one client", "no-reentrance", func(b *broken) {
		var mu sync.Mutex // guards mine
		mine := map[string]driver.Grant{}
		b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			mu.Lock()
			known := mine[req.Name]
			mu.Unlock()
			if h, ok := b.holder(ctx, req.Name); ok && h.Owner == known.Owner {
				return known, nil
			}
			g, err := b.process.Acquire(ctx, req)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				mine[req.Name] = g
			}
			return g, err
		}
	}},
	{"refusal without facts", "try-held", func(b *broken) {
		b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			g, err := b.process.Acquire(ctx, req)
			if held, ok := errors.AsType[*driver.HeldError](err); ok && !req.Wait {
				err = &driver.HeldError{Name: held.Name, Since: held.Since}
			}
			return g, err
		}
	}},
	{"half of the lease", "no-steal", func(b *broken) {
		b.ask(func(req *driver.Request) { req.TTL /= 2 })
	}},
	{"believes in twice the lease", "loss-before-grant", func(b *broken) {
		b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			ttl := req.TTL
			req.TTL /= 2
			g, err := b.process.Acquire(ctx, req)
			g.TTL = ttl
			return g, err
		}
	}},
	{"no expiry", "expiry", func(b *broken) {
		b.ask(func(req *driver.Request) { req.TTL *= 1000 })
	}},
	{"a renewal with another TTL extends nothing", "renew-other-ttl", func(b *broken) {
		b.renew = func(ctx context.Context, ls []driver.Lease) []error {
			errs := make([]error, len(ls))
			for i, l := range ls {
				if h, ok := b.holder(ctx, l.Name); !ok || h.Owner != l.Owner || h.Lease == l.TTL {
					errs[i] = b.renewOne(ctx, l)
				}
			}
			return errs
		}
	}},
	{"renew revives the dead", "renew-expired", func(b *broken) {
		b.translate()
		b.renews(func(ctx context.Context, l driver.Lease) error {
			err := b.renewOne(ctx, b.real(l))
			if !errors.Is(err, driver.ErrNotHeld) {
				return err
			}
			g, err := b.process.Acquire(ctx, driver.Request{Name: l.Name, Mode: l.Mode, TTL: l.TTL})
			if err != nil {
				return fmt.Errorf("%w: %w", driver.ErrNotHeld, err)
			}
			b.remember(l.Owner, driver.Lease{Name: l.Name, Owner: g.Owner, Token: g.Token, Mode: l.Mode, TTL: l.TTL})
			return nil
		})
	}},
	{"release by name", "release-owner-checked", func(b *broken) {
		b.release = func(ctx context.Context, l driver.Lease) error {
			if h, ok := b.holder(ctx, l.Name); ok {
				l.Owner, l.Token = h.Owner, h.Token
			}
			return b.process.Release(ctx, l)
		}
	}},
	{"release checks the owner only", "release-owner-checked", func(b *broken) {
		b.release = func(ctx context.Context, l driver.Lease) error {
			if h, ok := b.holder(ctx, l.Name); ok && h.Owner == l.Owner {
				l.Token = h.Token
			}
			return b.process.Release(ctx, l)
		}
	}},
	{"release twice is fine", "release-twice", func(b *broken) {
		b.release = func(ctx context.Context, l driver.Lease) error {
			if err := b.process.Release(ctx, l); !errors.Is(err, driver.ErrNotHeld) {
				return err
			}
			return nil
		}
	}},
	{"late release frees the successor", "late-release", func(b *broken) {
		b.release = func(ctx context.Context, l driver.Lease) error {
			err := b.process.Release(ctx, l)
			if h, ok := b.holder(ctx, l.Name); ok && err != nil && h.Token > l.Token {
				b.process.Release(ctx, driver.Lease{Name: l.Name, Owner: h.Owner, Token: h.Token})
			}
			return err
		}
	}},
	{"shared beside exclusive", "shared", func(b *broken) {
		b.rename(func(name string, m driver.Mode) string { return fmt.Sprint(name, "#", m) })
	}},
	{"limit off by one", "limit", func(b *broken) {
		b.ask(func(req *driver.Request) {
			if req.Limit > 0 {
				req.Limit++
			}
		})
	}},
	{"no minimum hold", "min-hold", func(b *broken) {
		b.ask(func(req *driver.Request) { req.MinHold = 0 })
	}},
	{"a minimum hold shuts out the exclusive alone", "min-hold", func(b *broken) {
		b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if s := b.status(ctx, req.Name); req.Mode == driver.Shared && len(s.Holders) == 0 && !s.NotBefore.IsZero() {
				b.process.Break(ctx, req.Name, "for the others")
			}
			return b.process.Acquire(ctx, req)
		}
	}},
	{"another limit is a holder in the way", "limit", func(b *broken) {
		b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			g, err := b.process.Acquire(ctx, req)
			if errors.Is(err, driver.ErrInvalid) {
				err = &driver.HeldError{Name: req.Name}
			}
			return g, err
		}
	}},
	{"a break needs a holder", "break-minimum", func(b *broken) {
		b.brk = func(ctx context.Context, name, reason string) (int64, error) {
			if _, ok := b.holder(ctx, name); !ok {
				return 0, fmt.Errorf("%w: %q", driver.ErrNotHeld, name)
			}
			return b.process.Break(ctx, name, reason)
		}
	}},
	{"a break leaves the minimum hold", "break-minimum", func(b *broken) {
		b.brk = func(ctx context.Context, name, reason string) (int64, error) {
			end := b.status(ctx, name).NotBefore
			token, err := b.process.Break(ctx, name, reason)
			if left := time.Until(end); err == nil && left > 0 {
				b.restore(ctx, name, left)
			}
			return token, err
		}
	}},
	{"a break of one owner breaks whoever holds", "break-owner", func(b *broken) {
		b.one = func(ctx context.Context, name, _, reason string) (int64, error) {
			return b.process.Break(ctx, name, reason)
		}
	}},
	{"a break of one owner breaks all who share", "break-owner", func(b *broken) {
		b.one = func(ctx context.Context, name, owner, reason string) (int64, error) {
			for _, h := range b.status(ctx, name).Holders {
				if h.Owner == owner {
					return b.process.Break(ctx, name, reason)
				}
			}
			return 0, driver.ErrNotHeld
		}
	}},
	{"a break of one owner breaks nobody", "break-owner", func(b *broken) {
		b.one = func(ctx context.Context, name, owner, _ string) (int64, error) {
			for _, h := range b.status(ctx, name).Holders {
				if h.Owner == owner {
					return h.Token + 1, nil
				}
			}
			return 0, driver.ErrNotHeld
		}
	}},
	{"the minimum hold ends with the lease", "min-hold", func(b *broken) {
		b.ask(func(req *driver.Request) { req.MinHold = min(req.MinHold, req.TTL) })
	}},
}
