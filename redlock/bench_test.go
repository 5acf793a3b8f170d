package redlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/google/uuid"
)

// BenchmarkAcquireRelease takes and releases one lock on five local servers.
func BenchmarkAcquireRelease(b *testing.B) {
	e := dial(startNodes(b, 5).addrs()).Engine
	defer func() { _ = e.Close() }()
	for b.Loop() {
		_, l := take(b, e, "bench", 10*time.Second)
		release(b, e, l)
	}
}

// BenchmarkAcquireReleaseParallel does so with a name for each goroutine.
func BenchmarkAcquireReleaseParallel(b *testing.B) {
	e := dial(startNodes(b, 5).addrs()).Engine
	defer func() { _ = e.Close() }()
	b.RunParallel(func(pb *testing.PB) {
		req := driver.Request{Name: uuid.NewString(), TTL: 10 * time.Second}
		for pb.Next() {
			g, err := e.Acquire(context.Background(), req)
			if err != nil {
				b.Error(err)
				return
			}
			_ = e.Release(context.Background(), driver.Lease{Name: req.Name, Owner: g.Owner, Token: g.Token, TTL: req.TTL})
		}
	})
}
