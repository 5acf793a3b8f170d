//go:build unix

package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// TestOutageCostsOneLimit: the server does not answer, and the first call has failed. A hundred concurrent
// calls of all kinds then end within Config.Timeout of their own start. Calls that wait end with their contexts.
func TestOutageCostsOneLimit(t *testing.T) {
	t.Parallel()
	const limit = 3 * time.Second
	pg := pgtest.StartPostgres(t)
	e := engine(t, pg.DSN(), &pglock.Config{MaxTTL: time.Minute, Timeout: limit})
	lease := examtest.Held(t, e)
	release(t, e, try(t, e, request("n")))
	var leases []driver.Lease
	for i := range 10 {
		leases = append(leases, try(t, e, request(fmt.Sprint("held", i))))
	}
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
	call := func(name string, f func(ctx context.Context) error) examtest.Call {
		return examtest.Call{Name: name, Limit: limit, Make: func(ctx context.Context, _ int) error { return f(ctx) }}
	}
	examtest.Outage(t, slices.Concat(examtest.Calls(e, lease, limit), examtest.Lists(e, limit), examtest.RecordCalls(e.Records(), limit), []examtest.Call{
		call("a take", func(ctx context.Context) error {
			_, err := e.TakeRate(ctx, driver.RateTake{Key: "k", Cost: time.Second, Most: time.Second})
			return err
		}),
		call("an inspection", func(ctx context.Context) error {
			_, err := e.Inspect(ctx, lease.TTL)
			return err
		}),
		call("a break without a deadline", func(ctx context.Context) error {
			_, err := e.Break(ctx, "n", "outage")
			return err
		}),
		call("a change of a limit without a deadline", func(ctx context.Context) error { return e.Resize(ctx, "n", 3) }),
		call("a ping", e.Ping),
		{Name: "a release", Limit: limit, Make: func(ctx context.Context, i int) error { return e.Release(ctx, leases[i%len(leases)]) }},
	}))
}

// TestSlowServerIsNotSilent: a try on a link whose round trips are long, which takes longer than Config.Timeout
// in all, is granted: the server answers again and again.
func TestSlowServerIsNotSilent(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	p, dsn := throughProxy(t, pg)
	e := engine(t, dsn, &pglock.Config{Timeout: 3 * time.Second})
	p.Delay(faults.ToClient, 300*time.Millisecond)
	begun := time.Now()
	lease := try(t, e, request("n"))
	if took := time.Since(begun); took < 3*time.Second {
		t.Errorf("the try took only %v", took)
	}
	if _, err := e.Records().Swap(t.Context(), "r", nil, "", 0); err != nil {
		t.Error(err)
	}
	release(t, e, lease)
}

// TestSilentFirstHost: the first host of the DSN accepts connections and says nothing. A try reaches the
// second one within Config.Timeout.
func TestSilentFirstHost(t *testing.T) {
	t.Parallel()
	pg := pgtest.Database(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	second := fmt.Sprint("127.0.0.1:", pg.Port())
	e := engine(t, strings.Replace(pg.DSN(), second, silent.Addr().String()+","+second, 1), nil)
	release(t, e, try(t, e, request("n")))
}
