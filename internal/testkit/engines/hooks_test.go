package engines_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/faults"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/pglock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"
)

// counted is an engine whose requests to its server are counted by a proxy. Renewals are
// counted too: how many there are is a matter of time.
type counted struct {
	driver.Engine
	requests, renewals atomic.Int64
}

func (c *counted) Renew(ctx context.Context, leases []driver.Lease) []error {
	c.renewals.Add(int64(len(leases)))
	return c.Engine.Renew(ctx, leases)
}

// server is where engines connect to, directly or through a proxy.
type server struct {
	addr    string
	about   string // what requests have that are counted
	asks    int64  // how many more a wait costs that somebody wants to hear of
	connect func(t testing.TB, addr string) driver.Engine
}

// count connects through a proxy that counts.
func (s server) count(t testing.TB) *counted {
	t.Helper()
	p, err := faults.NewProxy(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	c := &counted{}
	p.OnRequest(s.about, func() { c.requests.Add(1) })
	c.Engine = s.connect(t, p.Addr())
	return c
}

func startRedis(t testing.TB) server {
	r := redistest.StartRedis(t)
	return server{r.Addr(), "lock:counted", 0, func(t testing.TB, addr string) driver.Engine {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		e := redislock.New(client, nil)
		t.Cleanup(func() { _ = e.Close() })
		return e
	}}
}

func startPostgres(t testing.TB) server {
	pg := pgtest.StartPostgres(t)
	addr := fmt.Sprint("127.0.0.1:", pg.Port())
	return server{addr, "", 1, func(t testing.TB, through string) driver.Engine {
		pool, err := pgxpool.New(context.Background(), strings.Replace(pg.DSN(), addr, through, 1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		e := pglock.New(pool, nil)
		t.Cleanup(func() { _ = e.Close() })
		return e
	}}
}

// tracers are nobody, one hook and all of them.
func tracers() map[string]*fencelock.Tracer {
	return map[string]*fencelock.Tracer{
		"one hook": {HoldEnd: func(context.Context, fencelock.TraceHoldEnd) {}},
		"all hooks": {
			AcquireStart: func(ctx context.Context, _ fencelock.TraceAcquireStart) context.Context { return ctx },
			AcquireWait:  func(context.Context, fencelock.TraceAcquireWait) {},
			AcquireEnd:   func(context.Context, fencelock.TraceAcquireEnd) {},
			HoldStart:    func(ctx context.Context, _ fencelock.TraceLock) context.Context { return ctx },
			RenewStart:   func(ctx context.Context, _ fencelock.TraceRenewStart) context.Context { return ctx },
			RenewEnd:     func(context.Context, fencelock.TraceRenewEnd) {},
			HoldEnd:      func(context.Context, fencelock.TraceHoldEnd) {},
			ReleaseStart: func(ctx context.Context, _ fencelock.TraceLock) context.Context { return ctx },
			ReleaseEnd:   func(context.Context, fencelock.TraceReleaseEnd) {},
		},
	}
}

// TestHooksSendNothing: whoever watches, the server gets the same number of requests, for
// locks that are free, held, shared, taken together and waited for. Only PostgreSQL is asked
// once more for each wait that somebody wants to hear of: who is in the way.
func TestHooksSendNothing(t *testing.T) {
	t.Parallel()
	for engine, start := range map[string]func(testing.TB) server{"redis": startRedis, "postgres": startPostgres} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			other := fencelock.New(s.connect(t, s.addr), nil)
			use(t, s.count(t), other, nil) // the server meets all this for the first time
			want := use(t, s.count(t), other, nil)
			if want < 10 {
				t.Errorf("nobody watches: %d requests", want)
			}
			for what, tracer := range tracers() {
				more := int64(0)
				if tracer.AcquireWait != nil {
					more = s.asks
				}
				got := use(t, s.count(t), other, tracer)
				for range 3 { // a slow machine may connect, or ask, once more than it has to
					switch {
					case got > want+more:
						got = min(got, use(t, s.count(t), other, tracer))
					case got < want+more:
						want = min(want, use(t, s.count(t), other, nil))
					}
				}
				if got != want+more {
					t.Errorf("%s: %d requests, and %d when nobody watches; want %d more", what, got, want, more)
				}
			}
		})
	}
}

// use uses locks, and returns how many requests that took.
func use(t *testing.T, engine *counted, other *fencelock.Locker, tracer *fencelock.Tracer) int64 {
	t.Helper()
	locks := fencelock.New(engine, &fencelock.Config{Tracer: tracer})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	nothing := func(context.Context) error { return nil }
	for range 5 {
		must(locks.Do(t.Context(), "counted", nothing))
	}
	must(locks.With(fencelock.Options{Shared: true}).Do(t.Context(), "counted", nothing))
	must(locks.DoAll(t.Context(), []string{"counted{a}", "counted{a}2"}, nothing))
	held, err := other.Acquire(t.Context(), "counted")
	must(err)
	if err := locks.TryDo(t.Context(), "counted", nothing); !errors.Is(err, fencelock.ErrHeld) {
		t.Fatalf("a try for a held name: %v", err)
	}
	waited := make(chan error, 1)
	go func() { waited <- locks.Do(t.Context(), "counted", nothing) }() // ends when it was its turn
	for {
		s, err := other.Status(t.Context(), "counted")
		must(err)
		if len(s.Waiters) == 1 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	must(held.Release())
	must(<-waited)
	return engine.requests.Load() - engine.renewals.Load()
}
