//go:build unix

package pglock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/enginetest"
	"github.com/fencelock/fencelock/pglock"
)

// BenchmarkAcquireRelease compares an acquire and a release with the two bare
// statements they cannot do without.
func BenchmarkAcquireRelease(b *testing.B) {
	pg := enginetest.StartPostgres(b)
	ctx := context.Background()
	b.Run("bare", func(b *testing.B) {
		conn := pg.Connect(b)
		for b.Loop() {
			var ok bool
			if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(1)).Scan(&ok); err != nil || !ok {
				b.Fatal(ok, err)
			}
			if err := conn.QueryRow(ctx, "SELECT pg_advisory_unlock($1)", int64(1)).Scan(&ok); err != nil || !ok {
				b.Fatal(ok, err)
			}
		}
	})
	e := pglock.New(newPool(pg.DSN()), nil)
	defer e.Close()
	for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared} {
		b.Run(mode.String(), func(b *testing.B) {
			req := driver.Request{Name: "a", TTL: 30 * time.Second, Mode: mode}
			for b.Loop() {
				g, err := e.Acquire(ctx, req)
				if err != nil {
					b.Fatal(err)
				}
				if err := e.Release(ctx, leaseOf(req, g)); err != nil {
					b.Fatal(err)
				}
			}
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

// BenchmarkHandOver is the time from a release to the grant of the next process,
// against the same between two bare connections.
func BenchmarkHandOver(b *testing.B) {
	pg := enginetest.StartPostgres(b)
	ctx := context.Background()
	b.Run("bare", func(b *testing.B) {
		conns := []*pgx.Conn{pg.Connect(b), pg.Connect(b)}
		exec := func(c *pgx.Conn, sql string) {
			if _, err := c.Exec(ctx, sql, int64(1)); err != nil {
				b.Error(err)
			}
		}
		exec(conns[0], "SELECT pg_advisory_lock($1)")
		handOver(b, func(from, to int) (func(), func()) {
			return func() { exec(conns[to], "SELECT pg_advisory_lock($1)") },
				func() { exec(conns[from], "SELECT pg_advisory_unlock($1)") }
		})
	})
	b.Run("pglock", func(b *testing.B) {
		es := []*pglock.Engine{pglock.New(newPool(pg.DSN()), nil), pglock.New(newPool(pg.DSN()), nil)}
		req := driver.Request{Name: "a", TTL: 30 * time.Second, Wait: true}
		leases := make([]driver.Lease, 2)
		acquire := func(i int) {
			g, err := es[i].Acquire(ctx, req)
			if err != nil {
				b.Error(err)
			}
			leases[i] = leaseOf(req, g)
		}
		acquire(0)
		handOver(b, func(from, to int) (func(), func()) {
			return func() { acquire(to) }, func() {
				if err := es[from].Release(ctx, leases[from]); err != nil {
					b.Error(err)
				}
			}
		})
		for _, e := range es {
			_ = e.Close()
		}
	})
}

// handOver passes a lock between two holders and reports the time it takes from
// the release to the grant.
func handOver(b *testing.B, steps func(from, to int) (acquire, release func())) {
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		acquire, release := steps(i%2, 1-i%2)
		granted := make(chan time.Time)
		go func() { // ends with the grant
			acquire()
			granted <- time.Now()
		}()
		time.Sleep(3 * time.Millisecond) // until it waits
		begun := time.Now()
		release()
		took = append(took, (<-granted).Sub(begun))
	}
	b.ReportMetric(float64(median(took).Microseconds()), "µs/hand-over")
}
