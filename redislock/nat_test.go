package redislock_test

import (
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redlock"
	redlockgoredis "github.com/fencelock/fencelock/redlock/goredis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// nat is a proxy that can drop its connections silently, as a NAT does that ran out of memory or
// patience. New connections are served.
func nat(t *testing.T, server *redistest.Redis) (addr string, forget func()) {
	t.Helper()
	p, err := faults.NewProxy(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p.Addr(), func() {
		for _, l := range p.Links() {
			l.Stall(faults.Both)
		}
	}
}

// pooled returns a go-redis client that takes the connection that was idle longest. All the
// connections of its pool have been used.
func pooled(t *testing.T, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, PoolFIFO: true, PoolSize: 30})
	t.Cleanup(func() { _ = client.Close() })
	if err := client.Ping(t.Context()).Err(); err != nil { // concurrent first connections of this client are a data race
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 30 {
		conn := client.Conn()
		all.Go(func() {
			if err := conn.Ping(t.Context()).Err(); err != nil {
				t.Error(err)
			}
		})
		defer func() { _ = conn.Close() }() // after all have one
	}
	all.Wait()
	return client
}

// TestRenewalAfterANATForgot: all connections of a client are dead, and nothing says so. The
// renewal, release or acquire that is not answered is repeated on a new connection, so no lock is lost, and
// nothing else fails, although every other connection of the pool would not have answered either.
func TestRenewalAfterANATForgot(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) (engine fencelock.Engine, forget func()){
		"go-redis": func(t *testing.T) (fencelock.Engine, func()) {
			addr, forget := nat(t, redistest.StartRedis(t))
			client := pooled(t, addr)
			return goredisOf(t, client, nil), forget
		},
		"rueidis": func(t *testing.T) (fencelock.Engine, func()) {
			addr, forget := nat(t, redistest.StartRedis(t))
			client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ConnWriteTimeout: 3 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.Close)
			return redislock.New(client, nil), forget
		},
		"redlock": func(t *testing.T) (fencelock.Engine, func()) {
			var clients []redis.UniversalClient
			var forgets []func()
			for range 3 {
				addr, forget := nat(t, redistest.StartRedis(t))
				clients, forgets = append(clients, pooled(t, addr)), append(forgets, forget)
			}
			e := redlockgoredis.New(clients, &redlock.Config{MaxTTL: 10 * time.Second})
			t.Cleanup(func() { _ = e.Close() })
			if err := e.Init(t.Context()); err != nil {
				t.Fatal(err)
			}
			return e, func() {
				for _, forget := range forgets {
					forget()
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine, forget := open(t)
			locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: 9 * time.Second})
			lock, err := locks.Acquire(t.Context(), "n")
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				forget()
				before := lock.Deadline()
				for lock.Err() == nil && !lock.Deadline().After(before) {
					time.Sleep(50 * time.Millisecond)
				}
				if err := lock.Err(); err != nil {
					t.Fatal(err)
				}
			}
			forget()
			switch err := lock.Release(); {
			case err != nil && name == "redlock":
				t.Log("a release on three nodes may need more attempts than it has time for: ", err)
			case err != nil:
				t.Error(err)
			}
			if name == "redlock" {
				return
			}
			forget()
			if _, err := locks.TryAcquire(t.Context(), "m"); err != nil {
				t.Errorf("an acquire: %v", err)
			}
		})
	}
}
