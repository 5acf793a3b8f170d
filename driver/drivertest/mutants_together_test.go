package drivertest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// joining are engines that are wrong about several names at once.
var joining = []mutant{
	{"a refusal leaves the names before it held", "all-or-none", func(b *broken) {
		b.all = func(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
			grants := make([]driver.Grant, len(reqs))
			for i, req := range reqs {
				var err error
				if grants[i], err = b.process.Acquire(ctx, req); err != nil {
					return nil, err
				}
			}
			return grants, nil
		}
	}},
	{"the names before a held one are free too late", "all-or-none", func(b *broken) {
		b.all = func(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
			grants, err := b.process.AcquireAll(ctx, reqs)
			if errors.Is(err, driver.ErrHeld) {
				for _, req := range reqs {
					req.TTL = time.Second
					b.process.Acquire(ctx, req)
				}
			}
			return grants, err
		}
	}},
	{"a refusal is about the first name", "all-or-none", func(b *broken) {
		b.all = func(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
			grants, err := b.process.AcquireAll(ctx, reqs)
			if errors.Is(err, driver.ErrHeld) {
				err = &driver.HeldError{Name: reqs[0].Name}
			}
			return grants, err
		}
	}},
	{"the last name is not held", "all-or-none", func(b *broken) {
		b.joins(func(ctx context.Context, reqs []driver.Request) []driver.Request {
			reqs[len(reqs)-1].Name += b.unique()
			return reqs
		})
	}},
	{"names together pass a waiter", "all-or-none", func(b *broken) {
		b.joins(func(ctx context.Context, reqs []driver.Request) []driver.Request {
			for i, req := range reqs {
				if s := b.status(ctx, req.Name); s.Mode == req.Mode && req.Mode == driver.Shared {
					reqs[i].Name += b.unique()
				}
			}
			return reqs
		})
	}},
	{"names together pass a waiter in a gap", "all-or-none", func(b *broken) {
		b.waits(func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if b.status(ctx, req.Name).Mode == driver.Shared {
				return b.process.Acquire(ctx, req)
			}
			return b.poll(ctx, req, time.Second, always)
		})
	}},
	{"checks first and takes later", "all-or-none", func(b *broken) {
		b.joins(func(ctx context.Context, reqs []driver.Request) []driver.Request {
			for _, req := range reqs {
				if s := b.status(ctx, req.Name); s.Name != "" {
					return reqs // which will be refused
				}
			}
			time.Sleep(time.Millisecond)
			for i, req := range reqs {
				if s := b.status(ctx, req.Name); s.Name != "" {
					reqs[i].Name += b.unique() // held by now, and nobody looks
				}
			}
			return reqs
		})
	}},
	{"names together have old tokens", "all-or-none", func(b *broken) {
		b.translate()
		b.all = func(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
			grants, err := b.process.AcquireAll(ctx, reqs)
			for i, g := range grants {
				b.remember(g.Owner, lease(reqs[i], g))
				grants[i].Token -= 1_000
				grants[i].Floor -= 1_000
			}
			return grants, err
		}
	}},
	{"names together are one acquisition", "all-or-none", func(b *broken) {
		b.translate()
		b.all = func(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
			grants, err := b.process.AcquireAll(ctx, reqs)
			for i := range grants {
				grants[i].Owner = grants[0].Owner
			}
			return grants, err
		}
	}},
	{"a request given up leaves its names held", "all-or-none", func(b *broken) {
		b.all = func(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
			grants, err := b.process.AcquireAll(context.WithoutCancel(ctx), reqs)
			if err == nil && ctx.Err() != nil {
				return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
			}
			return grants, err
		}
	}},
	{"names together outlive their client", "all-or-none", func(b *broken) {
		b.all = func(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
			for i := range reqs {
				reqs[i].TTL *= 1000
			}
			return b.process.AcquireAll(ctx, reqs)
		}
	}},
	{"breaks one name of several in silence", "all-or-none", func(b *broken) {
		b.all = func(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
			for i := range reqs {
				reqs[i].OnLost = nil
			}
			return b.process.AcquireAll(ctx, reqs)
		}
	}},
}

// lease is what a grant gives the right to.
func lease(req driver.Request, g driver.Grant) driver.Lease {
	return driver.Lease{Name: req.Name, Owner: g.Owner, Token: g.Token, Mode: req.Mode, TTL: req.TTL}
}

// unique is a suffix that makes a name one nobody else uses.
func (b *broken) unique() string {
	b.world.mu.Lock()
	defer b.world.mu.Unlock()
	b.world.suffixes++
	return fmt.Sprint("#", b.world.suffixes)
}

// joins replaces how a client takes several names, by a change to its requests.
func (b *broken) joins(change func(context.Context, []driver.Request) []driver.Request) {
	b.translate()
	b.all = func(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
		reqs = change(ctx, append([]driver.Request(nil), reqs...))
		grants, err := b.process.AcquireAll(ctx, reqs)
		for i, g := range grants {
			b.remember(g.Owner, lease(reqs[i], g))
		}
		return grants, err
	}
}
