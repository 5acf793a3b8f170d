package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// silentEngine answers nothing before the context of a call ends, or its own patience.
type silentEngine struct {
	*memlock.Engine
	patience time.Duration
}

func (e silentEngine) Acquire(ctx context.Context, _ driver.Request) (driver.Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, e.patience)
	defer cancel()
	<-ctx.Done()
	return driver.Grant{}, fmt.Errorf("%w: no answer: %w", driver.ErrUnavailable, ctx.Err())
}

// TestLimitIsNoContextError: a silent engine is the error of the caller's context only if that has
// ended. The limits of the library and of an engine are not.
func TestLimitIsNoContextError(t *testing.T) {
	for _, c := range []struct {
		name             string
		engine, ttl, ctx time.Duration
		wait             bool
		want             bool
	}{
		{"engine's limit, try", 4 * time.Second, time.Minute, time.Hour, false, false},
		{"engine's limit, wait", 4 * time.Second, time.Minute, time.Hour, true, false},
		{"TTL, try", time.Hour, 2 * time.Second, time.Hour, false, false},
		{"caller's context, try", time.Hour, time.Minute, time.Second, false, true},
		{"caller's context, wait", time.Hour, time.Minute, time.Second, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks := fencelock.New(silentEngine{memlock.New(nil), c.engine}, nil).With(fencelock.Options{TTL: c.ttl})
				ctx, cancel := context.WithTimeout(t.Context(), c.ctx)
				defer cancel()
				acquire := locks.TryAcquire
				if c.wait {
					acquire = locks.Acquire
				}
				_, err := acquire(ctx, "n")
				if !errors.Is(err, fencelock.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) != c.want {
					t.Errorf("%v: DeadlineExceeded %t, want %t", err, !c.want, c.want)
				}
			})
		})
	}
}

// unsureEngine grants without the time of the request, and does not answer the renewal that confirms it.
type unsureEngine struct{ *memlock.Engine }

func (e unsureEngine) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	g, err := e.Engine.Acquire(ctx, req)
	g.Sent = time.Time{}
	return g, err
}

func (e unsureEngine) Renew(ctx context.Context, leases []driver.Lease) []error {
	<-ctx.Done()
	return []error{fmt.Errorf("%w: no answer: %w", driver.ErrUnavailable, ctx.Err())}
}

// TestLimitOfAConfirmationIsNoContextError: neither is the limit of a confirmation.
func TestLimitOfAConfirmationIsNoContextError(t *testing.T) {
	for ended, limit := range map[bool]time.Duration{false: time.Hour, true: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			locks := fencelock.New(unsureEngine{memlock.New(nil)}, nil).With(fencelock.Options{TTL: time.Minute})
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := locks.TryAcquire(ctx, "n")
			if !errors.Is(err, fencelock.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) != ended {
				t.Errorf("%v: DeadlineExceeded %t, want %t", err, !ended, ended)
			}
		})
	}
}
