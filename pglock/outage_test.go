//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// TestOutageCostsOneLimit: the server does not answer, and the first call has failed. A hundred concurrent
// calls of all kinds then end within the limits in the documentation, counted from their own start.
// Calls that wait end with their contexts.
func TestOutageCostsOneLimit(t *testing.T) {
	t.Parallel()
	const (
		tries   = 20 * time.Second
		queries = 15 * time.Second
		tables  = 30 * time.Second
	)
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), &pglock.Config{MaxTTL: time.Minute})
	lease := examtest.Held(t, e)
	release(t, e, try(t, e, request("n")))
	if _, err := e.Records().Swap(t.Context(), "r", nil, "", 0); err != nil {
		t.Fatal(err)
	}
	pg.Freeze(t)
	defer pg.Thaw(t)
	soon, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := e.Acquire(soon, request("first")); !errors.Is(err, driver.ErrUnavailable) {
		t.Fatalf("a silent server: %v", err)
	}
	call := func(name string, limit time.Duration, f func(ctx context.Context) error) examtest.Call {
		return examtest.Call{Name: name, Limit: limit, Make: func(ctx context.Context, _ int) error { return f(ctx) }}
	}
	examtest.Outage(t, slices.Concat(examtest.Calls(e, lease, tries), examtest.Lists(e, queries), examtest.RecordCalls(e.Records(), tables), []examtest.Call{
		call("a take", tables, func(ctx context.Context) error {
			_, err := e.TakeRate(ctx, driver.RateTake{Key: "k", Cost: time.Second, Most: time.Second})
			return err
		}),
		call("an inspection", tries, func(ctx context.Context) error {
			_, err := e.Inspect(ctx, lease.TTL)
			return err
		}),
		call("a break without a deadline", queries, func(ctx context.Context) error {
			_, err := e.Break(ctx, "n", "outage")
			return err
		}),
		call("a change of a limit without a deadline", queries, func(ctx context.Context) error { return e.Resize(ctx, "n", 3) }),
		call("a ping", queries, e.Ping),
	}))
}
