package drivertest_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// always is a turn that is always there.
func always() bool { return true }

// waiting are engines that are wrong about waiters.
var waiting = []mutant{
	{"last come, first served", "fifo", func(b *broken) {
		w := b.world
		b.waits(func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			w.mu.Lock()
			w.stack = append(w.stack, &req)
			w.mu.Unlock()
			defer func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.stack = slices.DeleteFunc(w.stack, func(r *driver.Request) bool { return r == &req })
			}()
			return b.poll(ctx, req, time.Second, func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.stack[len(w.stack)-1] == &req
			})
		})
	}},
	{"no queue", "no-barging", func(b *broken) {
		b.waits(func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			return b.poll(ctx, req, time.Second, always)
		})
	}},
	{"lost wake-up", "wake-up", func(b *broken) {
		b.waits(func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			return b.poll(ctx, req, time.Hour, always)
		})
	}},
	{"never grants to a waiter", "wake-up", func(b *broken) {
		b.waits(func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			return b.poll(ctx, req, time.Hour, func() bool { return false })
		})
	}},
	{"the dead get their turn", "dead-waiter", func(b *broken) { b.waits(b.proxy) }},
	{"the frozen get their turn for good", "frozen-waiter", func(b *broken) {
		b.waits(func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			req.TTL *= 1000
			return b.proxy(ctx, req)
		})
	}},
	{"the thawed believe in an old grant", "frozen-waiter", func(b *broken) {
		b.waits(func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			g, err := b.proxy(ctx, req)
			g.Sent = time.Now()
			return g, err
		})
	}},
	{"the cancelled are granted", "cancelled-waiter", func(b *broken) {
		b.waits(b.stay)
	}},
	{"giving up speaks one language", "cancelled-waiter", func(b *broken) {
		b.waits(func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			g, err := b.process.Acquire(ctx, req)
			if err != nil && ctx.Err() != nil {
				err = ctx.Err()
			}
			return g, err
		})
	}},
	{"a grant is lost on the way", "cancel-race", func(b *broken) {
		b.waits(func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			g, err := b.process.Acquire(ctx, req)
			time.Sleep(time.Millisecond)
			if err == nil && ctx.Err() != nil {
				return g, errors.Join(&driver.HeldError{Name: req.Name}, ctx.Err())
			}
			return g, err
		})
	}},
	{"Close ends nothing", "closed-engine", func(b *broken) { b.close = func() {} }},
	{"a closed engine leaves its waiters", "closed-engine", func(b *broken) { b.waits(b.stay) }},
	{"writers wait for a gap", "writer-not-starved", func(b *broken) {
		b.waits(func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if req.Mode == driver.Shared {
				return b.process.Acquire(ctx, req)
			}
			return b.poll(ctx, req, time.Second, always)
		})
	}},
}
