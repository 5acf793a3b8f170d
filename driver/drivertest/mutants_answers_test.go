package drivertest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// answering are engines that mix up busy and broken, or are not there for those who
// watch.
var answering = []mutant{
	{"silent means held", "unreachable", func(b *broken) {
		b.waits(func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			g, err := b.process.Acquire(ctx, req)
			if err != nil && ctx.Err() != nil {
				err = errors.Join(&driver.HeldError{Name: req.Name}, ctx.Err())
			}
			return g, err
		})
	}},
	{"a try of a silent engine says held", "unreachable", func(b *broken) {
		b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			g, err := b.process.Acquire(ctx, req)
			if !req.Wait && errors.Is(err, driver.ErrUnavailable) {
				err = &driver.HeldError{Name: req.Name}
			}
			return g, err
		}
	}},
	{"held means silent", "unreachable", func(b *broken) {
		b.waits(func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			g, err := b.process.Acquire(ctx, req)
			if err != nil && ctx.Err() != nil {
				err = fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
			}
			return g, err
		})
	}},
	{"an ended context means held", "ended-context", func(b *broken) {
		b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if ctx.Err() != nil {
				return driver.Grant{}, errors.Join(&driver.HeldError{Name: req.Name}, ctx.Err())
			}
			return b.process.Acquire(ctx, req)
		}
	}},
	{"an ended context means unavailable", "ended-context", func(b *broken) {
		b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if ctx.Err() != nil {
				return driver.Grant{}, fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
			}
			return b.process.Acquire(ctx, req)
		}
	}},
	{"takes what is free with an ended context", "ended-context", func(b *broken) {
		b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if !req.Wait {
				ctx = context.WithoutCancel(ctx)
			}
			return b.process.Acquire(ctx, req)
		}
	}},
	{"asks before it looks at the context", "ended-context", func(b *broken) {
		b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			_, _ = b.process.List(b.world.ctx, driver.Query{Prefix: req.Name, Exact: true})
			return b.process.Acquire(ctx, req)
		}
	}},
	{"gives up in an outage", "outage", func(b *broken) {
		b.waits(func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			b.world.mu.Lock()
			cut := b.world.cut
			b.world.mu.Unlock()
			ctx, stop := context.WithCancelCause(ctx)
			defer stop(nil)
			go func() { // ends with the wait
				select {
				case <-cut:
					stop(driver.ErrUnavailable)
				case <-ctx.Done():
				}
			}()
			g, err := b.process.Acquire(ctx, req)
			if err != nil && errors.Is(context.Cause(ctx), driver.ErrUnavailable) {
				err = driver.ErrUnavailable
			}
			return g, err
		})
	}},
	{"only those who listen are in the queue", "silent-waiter", func(b *broken) {
		b.waits(func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if req.OnWait == nil {
				return b.poll(ctx, req, time.Second, always)
			}
			return b.process.Acquire(ctx, req)
		})
	}},
	{"a waiter is told twice", "waiting-once", func(b *broken) {
		b.ask(func(req *driver.Request) {
			if told := req.OnWait; told != nil {
				req.OnWait = func(info driver.WaitInfo) {
					told(info)
					told(info)
				}
			}
		})
	}},
	{"a panic leaves a waiter", "panicking-callback", func(b *broken) {
		b.waits(func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			told, panicked := req.OnWait, make(chan any, 1)
			req.OnWait = func(info driver.WaitInfo) {
				defer func() { panicked <- recover() }()
				if told != nil {
					told(info)
				}
			}
			inner, cancel := context.WithCancel(b.world.ctx)
			stay := context.AfterFunc(ctx, cancel)
			var g driver.Grant
			var err error
			answered := make(chan struct{})
			go func() { // ends when granted, at the latest with the test
				defer close(answered)
				g, err = b.process.Acquire(inner, req)
			}()
			select {
			case p := <-panicked:
				if p != nil {
					stay()
					panic(p)
				}
				<-answered
			case <-answered:
			}
			return g, err
		})
	}},
	{"a panic keeps a mutex", "panicking-callback", func(b *broken) {
		turn := make(chan struct{}, 1)
		b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			told := req.OnWait
			if told != nil {
				req.OnWait = func(info driver.WaitInfo) {
					turn <- struct{}{}
					told(info)
					<-turn
				}
			}
			select {
			case turn <- struct{}{}:
				<-turn
			case <-ctx.Done():
				return driver.Grant{}, driver.ErrUnavailable
			}
			return b.process.Acquire(ctx, req)
		}
	}},
}
