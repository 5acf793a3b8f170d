package goredis_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redislock/goredis"
	"github.com/fencelock/fencelock/redlock"
	"github.com/redis/go-redis/v9"
)

// TestNodesThatDoNotServe: clients of a kind that cannot keep locks are an ErrConfig, and
// nobody waits for a change.
func TestNodesThatDoNotServe(t *testing.T) {
	t.Parallel()
	var nodes []redlock.Node
	for range 3 {
		ring := redis.NewRing(&redis.RingOptions{})
		t.Cleanup(func() { _ = ring.Close() })
		nodes = append(nodes, goredis.Node(ring))
	}
	e := redlock.New(nodes, &redlock.Config{RetryTimeout: time.Second})
	t.Cleanup(func() { _ = e.Close() })
	for _, wait := range []bool{false, true} {
		_, err := e.Acquire(t.Context(), driver.Request{Name: "x", TTL: time.Second, Wait: wait})
		if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "redis.Ring") {
			t.Errorf("got %v, want ErrConfig", err)
		}
	}
}

// TestNode: a majority of masters behind clients of go-redis keeps a lock.
func TestNode(t *testing.T) {
	t.Parallel()
	var nodes []redlock.Node
	for range 3 {
		client := redis.NewClient(&redis.Options{Addr: redistest.StartRedis(t).Addr()})
		t.Cleanup(func() { _ = client.Close() })
		nodes = append(nodes, goredis.Node(client))
	}
	cfg := &redlock.Config{MaxTTL: 10 * time.Minute, NodeLimit: 20 * time.Second, RetryTimeout: time.Minute} // the machine may be slow
	e, other := redlock.New(nodes, cfg), redlock.New(nodes, cfg)
	t.Cleanup(func() { _, _ = e.Close(), other.Close() })
	if err := e.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	req := driver.Request{Name: "x", TTL: cfg.MaxTTL}
	g, err := e.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Acquire(t.Context(), req); err == nil {
		t.Error("two hold the lock")
	}
	if err := e.Release(t.Context(), driver.Lease{Name: "x", Owner: g.Owner, Token: g.Token, TTL: req.TTL}); err != nil {
		t.Error(err)
	}
	if next, err := other.Acquire(t.Context(), req); err != nil || next.Token <= g.Token {
		t.Errorf("after the release: token %d after %d, %v", next.Token, g.Token, err)
	}
}
