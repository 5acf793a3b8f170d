//go:build unix

package redlock_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redlock"
	redlockgoredis "github.com/fencelock/fencelock/redlock/goredis"
	"github.com/redis/go-redis/v9"
)

// TestDialsOfANodeThatIsBack: many requests ask a node that did not answer for a while. They open few
// connections.
func TestDialsOfANodeThatIsBack(t *testing.T) {
	t.Parallel()
	const pool, limit = 5, 16
	var dials atomic.Int32
	var slow atomic.Bool
	dial := func(_ context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		if slow.Load() { // so that all requests meet
			time.Sleep(500 * time.Millisecond)
		}
		return net.Dial(network, addr)
	}
	var servers []*redistest.Redis
	var clients []redis.UniversalClient
	for range 3 {
		s := redistest.StartRedis(t)
		client := redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: pool, Dialer: dial})
		t.Cleanup(func() { _ = client.Close() })
		servers, clients = append(servers, s), append(clients, client)
		dial = nil
	}
	e := redlockgoredis.New(clients, &redlock.Config{MaxTTL: 10 * time.Second})
	t.Cleanup(func() { _ = e.Close() })
	if err := e.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	acquire := func(name string) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		g, err := e.Acquire(ctx, driver.Request{Name: name, TTL: 10 * time.Second})
		if err == nil {
			_ = e.Release(ctx, driver.Lease{Name: name, Owner: g.Owner, Token: g.Token, TTL: 10 * time.Second})
		}
	}
	acquire("before")
	servers[0].Freeze(t)
	acquire("during")
	time.Sleep(3 * time.Second) // until that call is given up
	servers[0].Thaw(t)
	time.Sleep(3 * time.Second) // the node is back then; if not, the test shows less
	slow.Store(true)
	before := dials.Load()
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() { acquire(fmt.Sprint(i)) })
	}
	all.Wait()
	if n := dials.Load() - before; n > 3*(pool+limit) {
		t.Errorf("%d connections were opened", n)
	}
	t.Logf("%d connections were opened", dials.Load()-before)
}
