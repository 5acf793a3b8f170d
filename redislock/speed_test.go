package redislock_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redislock"
	"github.com/redis/rueidis"
)

const compareAndDelete = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`

// BenchmarkUncontended takes and frees one lock, in turns with the bare two
// commands on the same client, and reports the ratio of the medians.
func BenchmarkUncontended(b *testing.B) {
	r := redistest.StartRedis(b)
	client := rueidisClient(b, rueidisOption(r.Addr()))
	e := redislock.New(client, nil)
	b.Cleanup(func() { e.Close() })
	ctx := context.Background()
	bare := bareLock(b, client)
	ours := func() {
		g, err := e.Acquire(ctx, driver.Request{Name: "n", TTL: 30 * time.Second, Wait: true})
		if err != nil {
			b.Fatal(err)
		}
		if err := e.Release(ctx, driver.Lease{Name: "n", Owner: g.Owner, Token: g.Token, TTL: 30 * time.Second}); err != nil {
			b.Fatal(err)
		}
	}
	const round = 200
	var a, z []float64
	b.ReportAllocs()
	for b.Loop() {
		a, z = append(a, timed(round, bare)), append(z, timed(round, ours))
	}
	slices.Sort(a)
	slices.Sort(z)
	b.ReportMetric(a[len(a)/2], "bare-us")
	b.ReportMetric(z[len(z)/2], "ours-us")
	b.ReportMetric(z[len(z)/2]/a[len(a)/2], "ratio")
}

func timed(n int, f func()) float64 {
	begun := time.Now()
	for range n {
		f()
	}
	return float64(time.Since(begun).Microseconds()) / float64(n)
}

func bareLock(b *testing.B, client rueidis.Client) func() {
	script := rueidis.NewLuaScript(compareAndDelete)
	ctx, n := context.Background(), 0
	return func() {
		n++
		owner := strconv.Itoa(n)
		if err := client.Do(ctx, client.B().Set().Key("bare").Value(owner).Nx().PxMilliseconds(30000).Build()).Error(); err != nil {
			b.Fatal(err)
		}
		if err := script.Exec(ctx, client, []string{"bare"}, []string{owner}).Error(); err != nil {
			b.Fatal(err)
		}
	}
}
