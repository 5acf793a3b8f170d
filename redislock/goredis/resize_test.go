package goredis_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redislock/goredis"
	"github.com/redis/go-redis/v9"
)

func engineOn(t testing.TB, client redis.UniversalClient) *redislock.Engine {
	e := goredis.New(client, &redislock.Config{RetryTimeout: time.Minute})
	t.Cleanup(func() { _ = e.Close(); _ = client.Close() })
	return e
}

// TestResize: weights and a limit that changes, on one server and on a Cluster.
func TestResize(t *testing.T) {
	t.Parallel()
	addr, cluster := redistest.StartRedis(t).Addr(), redistest.StartRedisCluster(t, 3).Addrs()
	for what, engine := range map[string]func() *redislock.Engine{
		"server": func() *redislock.Engine { return engineOn(t, redis.NewClient(&redis.Options{Addr: addr})) },
		"cluster": func() *redislock.Engine {
			return engineOn(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster}))
		},
	} {
		t.Run(what, func(t *testing.T) { resized(t, engine(), engine()) })
	}
}

// resized fails the test unless a waiter of b gets in when a raises the limit.
func resized(t *testing.T, a, b *redislock.Engine) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	req := driver.Request{Name: "n", Mode: driver.Shared, Limit: 3, Weight: 2, TTL: time.Minute}
	if _, err := a.Acquire(ctx, req); err != nil {
		t.Fatal(err)
	}
	queued, answer := make(chan struct{}, 100), make(chan error, 1)
	req.Wait, req.OnWait = true, func(driver.WaitInfo) { queued <- struct{}{} }
	go func() { // ends when the waiter is granted, or with ctx
		_, err := b.Acquire(ctx, req)
		answer <- err
	}()
	select {
	case <-queued:
	case err := <-answer:
		t.Fatalf("2 and 2 of 3 units: %v", err)
	}
	if err := a.Resize(ctx, "n", 4); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	list, err := b.List(ctx, driver.Query{Prefix: "n", Exact: true})
	if err != nil || len(list) != 1 || list[0].Limit != 4 || len(list[0].Holders) != 2 || list[0].Holders[1].Weight != 2 {
		t.Errorf("%+v, %v", list, err)
	}
}
