package goredis_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redlock"
	"github.com/fencelock/fencelock/redlock/goredis"
	"github.com/redis/go-redis/v9"
)

// TestClientsThatDoNotServe: clients of a kind that cannot keep locks are an ErrConfig, and
// nobody waits for a change.
func TestClientsThatDoNotServe(t *testing.T) {
	t.Parallel()
	var clients []redis.UniversalClient
	for range 3 {
		ring := redis.NewRing(&redis.RingOptions{})
		t.Cleanup(func() { _ = ring.Close() })
		clients = append(clients, ring)
	}
	e := goredis.New(clients, &redlock.Config{RetryTimeout: time.Second})
	t.Cleanup(func() { _ = e.Close() })
	for _, wait := range []bool{false, true} {
		_, err := e.Acquire(t.Context(), driver.Request{Name: "x", TTL: time.Second, Wait: wait})
		if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "redis.Ring") {
			t.Errorf("got %v, want ErrConfig", err)
		}
	}
}

// TestMajority: a majority of masters behind clients of go-redis keeps a lock.
func TestMajority(t *testing.T) {
	t.Parallel()
	var clients []redis.UniversalClient
	for range 3 {
		client := redis.NewClient(&redis.Options{Addr: redistest.StartRedis(t).Addr()})
		t.Cleanup(func() { _ = client.Close() })
		clients = append(clients, client)
	}
	cfg := &redlock.Config{MaxTTL: 10 * time.Minute, NodeLimit: 20 * time.Second, RetryTimeout: time.Minute} // the machine may be slow
	e, other := goredis.New(clients, cfg), goredis.New(clients, cfg)
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
