package fencelock_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// BenchmarkAcquireRelease is what the front door costs; the engine alone is
// what it cannot go below.
func BenchmarkAcquireRelease(b *testing.B) {
	b.Run("locker", func(b *testing.B) {
		locks := fencelock.New(memlock.New(nil), nil)
		b.ReportAllocs()
		for b.Loop() {
			lock, err := locks.Acquire(b.Context(), "a")
			if err != nil {
				b.Fatal(err)
			}
			if err := lock.Release(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		locks := fencelock.New(memlock.New(nil), nil)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			var name [1]byte
			for i := 0; pb.Next(); i++ {
				lock, err := locks.Acquire(b.Context(), fmt.Sprintf("%p", &name))
				if err != nil {
					b.Fatal(err)
				}
				if err := lock.Release(); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
	b.Run("engine", func(b *testing.B) {
		engine := memlock.New(nil)
		req := driver.Request{Name: "a", TTL: hour}
		b.ReportAllocs()
		for b.Loop() {
			g, err := engine.Acquire(b.Context(), req)
			if err != nil {
				b.Fatal(err)
			}
			lease := driver.Lease{Name: req.Name, Owner: g.Owner, Token: g.Token, TTL: req.TTL}
			if err := engine.Release(b.Context(), lease); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkHeld is the memory that a held lock takes, with its part of memlock.
func BenchmarkHeld(b *testing.B) {
	const n = 20_000
	for b.Loop() {
		locks := fencelock.New(memlock.New(nil), nil)
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprint("lock-", i)
		}
		held := make([]*fencelock.Lock, n)
		before := inUse()
		for i, name := range names {
			lock, err := locks.Acquire(b.Context(), name)
			if err != nil {
				b.Fatal(err)
			}
			held[i] = lock
		}
		b.ReportMetric(float64(inUse()-before)/n, "B/lock")
		for _, lock := range held {
			_ = lock.Release()
		}
	}
}

// inUse returns the bytes of heap and stacks in use after a collection.
func inUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
