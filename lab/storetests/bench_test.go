//go:build unix

package storetests_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

// locker is a lock of one process in a benchmark.
type locker struct {
	acquire, release func(ctx context.Context) error
}

// lockers returns two processes' locks of one name, for each library.
func lockers(b *testing.B) map[string][]locker {
	etcd, nats := startEtcd(b, 1), startNATS(b, 1)
	openNATS(b, nats, "bench")
	all := map[string][]locker{}
	for range 2 {
		for name, e := range map[string]driver.Engine{
			"etcd": openEtcdLocks(etcd.addrs()[0] + " lab/bench"), "nats": openNATSLocks(nats.addrs()[0] + " lab/bench"),
		} {
			locks, lock := fencelock.New(e, nil), (*fencelock.Lock)(nil)
			all[name] = append(all[name], locker{
				func(ctx context.Context) (err error) { lock, err = locks.Acquire(ctx, "name"); return err },
				func(context.Context) error { return lock.Release() },
			})
		}
		session, err := concurrency.NewSession(etcdClient(b, etcd.addrs()))
		if err != nil {
			b.Fatal(err)
		}
		mutex := concurrency.NewMutex(session, "mutex/name")
		all["mutex"] = append(all["mutex"], locker{mutex.Lock, mutex.Unlock})
	}
	return all
}

// report adds quantiles to the results of a benchmark.
func report(b *testing.B, times []time.Duration) {
	slices.Sort(times)
	for name, q := range map[string]int{"p50-µs": 50, "p90-µs": 90, "p99-µs": 99} {
		b.ReportMetric(float64(times[(len(times)-1)*q/100].Microseconds()), name)
	}
}

// BenchmarkAcquire acquires and releases a free lock.
func BenchmarkAcquire(b *testing.B) {
	for name, of := range lockers(b) {
		b.Run(name, func(b *testing.B) {
			var times []time.Duration
			for b.Loop() {
				begun := time.Now()
				if err := of[0].acquire(b.Context()); err != nil {
					b.Fatal(err)
				}
				if err := of[0].release(b.Context()); err != nil {
					b.Fatal(err)
				}
				times = append(times, time.Since(begun))
			}
			report(b, times)
		})
	}
}

// BenchmarkHandOver measures from the release of a lock until another process that waits has it.
func BenchmarkHandOver(b *testing.B) {
	for name, of := range lockers(b) {
		b.Run(name, func(b *testing.B) {
			var times []time.Duration
			if err := of[0].acquire(b.Context()); err != nil {
				b.Fatal(err)
			}
			for i := 0; b.Loop(); i++ {
				holder, waiter := of[i%2], of[(i+1)%2]
				acquired := make(chan time.Time)
				go func() { // ends when it has the lock
					if err := waiter.acquire(b.Context()); err != nil {
						b.Error(err)
					}
					acquired <- time.Now()
				}()
				time.Sleep(20*time.Millisecond + rand.N(200*time.Millisecond)) // it waits by then
				released := time.Now()
				if err := holder.release(b.Context()); err != nil {
					b.Fatal(err)
				}
				times = append(times, (<-acquired).Sub(released))
			}
			report(b, times)
		})
	}
}
