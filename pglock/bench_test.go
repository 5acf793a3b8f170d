//go:build unix

package pglock_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// BenchmarkAcquireRelease compares an acquire and a release with the two bare
// statements they cannot do without. Both take turns, so that both meet the same
// machine; the medians are compared.
func BenchmarkAcquireRelease(b *testing.B) {
	pg := pgtest.StartPostgres(b)
	ctx := context.Background()
	conn := pg.Connect(b)
	bare := func() {
		for _, sql := range []string{"SELECT pg_try_advisory_lock($1)", "SELECT pg_advisory_unlock($1)"} {
			var ok bool
			if err := conn.QueryRow(ctx, sql, int64(1)).Scan(&ok); err != nil || !ok {
				b.Fatal(ok, err)
			}
		}
	}
	e := pglock.New(newPool(pg.DSN()), nil)
	defer e.Close()
	for name, opts := range map[string]fencelock.Options{"exclusive": {}, "shared": {Shared: true}} {
		locks := fencelock.New(e, nil).With(opts)
		b.Run(name, func(b *testing.B) {
			inTurn(b, bare, func() {
				l, err := locks.Acquire(ctx, "a")
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Release(); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
	b.Run("parallel", func(b *testing.B) {
		b.SetParallelism(32)
		b.RunParallel(func(p *testing.PB) {
			req := driver.Request{Name: fmt.Sprint(time.Now().UnixNano()), TTL: 30 * time.Second}
			for p.Next() {
				g, err := e.Acquire(ctx, req)
				if err != nil {
					b.Error(err)
					return
				}
				if err := e.Release(ctx, leaseOf(req, g)); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

// inTurn runs two things in turn, and reports how long the second takes and how
// many times the first.
func inTurn(b *testing.B, bare, ours func()) {
	var takes [2][]time.Duration
	for b.Loop() {
		for i, do := range []func(){bare, ours} {
			for range 10 { // of a run the first ones find cold caches
				begun := time.Now()
				do()
				takes[i] = append(takes[i], time.Since(begun))
			}
		}
	}
	report(b, takes)
}

// report reports the medians of what was measured, and what the second is to the
// first.
func report(b *testing.B, takes [2][]time.Duration) {
	for i, name := range []string{"bare", "ours"} {
		b.ReportMetric(float64(median(takes[i]).Nanoseconds())/1000, "µs/"+name)
	}
	slices.Sort(takes[0])
	slices.Sort(takes[1])
	quarter := func(ds []time.Duration) float64 { return float64(ds[len(ds)/4]) }
	b.ReportMetric(float64(median(takes[1]))/float64(median(takes[0])), "x(p50)")
	b.ReportMetric(quarter(takes[1])/quarter(takes[0]), "x(p25)")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkHandOver is the time from a release to the grant of the next process,
// against the same between two bare connections.
func BenchmarkHandOver(b *testing.B) {
	pg := pgtest.StartPostgres(b)
	ctx := context.Background()
	conns := []*pgx.Conn{pg.Connect(b), pg.Connect(b)}
	exec := func(c *pgx.Conn, sql string) {
		if _, err := c.Exec(ctx, sql, int64(1)); err != nil {
			b.Error(err)
		}
	}
	var lockers []*fencelock.Locker
	for range 2 {
		e := pglock.New(newPool(pg.DSN()), nil)
		defer e.Close()
		lockers = append(lockers, fencelock.New(e, nil))
	}
	locks := make([]*fencelock.Lock, 2)
	acquire := func(i int) {
		l, err := lockers[i].Acquire(ctx, "a")
		if err != nil {
			b.Error(err)
		}
		locks[i] = l
	}
	exec(conns[0], "SELECT pg_advisory_lock($1)")
	acquire(0)
	var takes [2][]time.Duration
	for i := 0; b.Loop(); i++ {
		from, to := i%2, 1-i%2
		takes[0] = append(takes[0], handOver(
			func() { exec(conns[to], "SELECT pg_advisory_lock($1)") },
			func() { exec(conns[from], "SELECT pg_advisory_unlock($1)") }))
		takes[1] = append(takes[1], handOver(func() { acquire(to) }, func() {
			if err := locks[from].Release(); err != nil {
				b.Error(err)
			}
		}))
	}
	report(b, takes)
}

// handOver returns how long it takes from the release to the grant.
func handOver(acquire, release func()) time.Duration {
	granted := make(chan time.Time)
	go func() { // ends with the grant
		acquire()
		granted <- time.Now()
	}()
	time.Sleep(10 * time.Millisecond) // until it waits
	begun := time.Now()
	release()
	return (<-granted).Sub(begun)
}
