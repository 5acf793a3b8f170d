package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redislock/goredis"
	"github.com/redis/go-redis/v9"
)

// inOutage returns how long each of n concurrent calls took.
func inOutage(n int, call func(i int)) []time.Duration {
	took := make([]time.Duration, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			begun := time.Now()
			call(i)
			took[i] = time.Since(begun)
		})
	}
	all.Wait()
	return took
}

// goredisEngine returns an engine on a go-redis client.
func goredisEngine(t testing.TB, o *redis.UniversalOptions, cfg *redislock.Config) *redislock.Engine {
	client := redis.NewUniversalClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return goredisOf(t, client, cfg)
}

// goredisOf returns an engine on a client.
func goredisOf(t testing.TB, client redis.UniversalClient, cfg *redislock.Config) *redislock.Engine {
	e := goredis.New(client, cfg)
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// TestOutageCostsOneTimeout: the server is silent, and the first call has failed. Each of a
// hundred concurrent calls then fails within RetryTimeout of its own start; none waits for the
// others. That the server is silent is no end of the caller's context.
func TestOutageCostsOneTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	cfg := &redislock.Config{RetryTimeout: timeout}
	for client, open := range map[string]func(s scene) *redislock.Engine{
		"rueidis": func(s scene) *redislock.Engine { return s.engine(cfg) },
		"go-redis": func(s scene) *redislock.Engine {
			return goredisEngine(s, &redis.UniversalOptions{Addrs: []string{s.server.Addr()}}, cfg)
		},
	} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			e := open(s)
			s.hold(e, request("before")).free()
			s.server.Freeze(t)
			defer s.server.Thaw(t)
			if _, err := e.Acquire(t.Context(), try(request("first"))); !errors.Is(err, driver.ErrUnavailable) {
				t.Fatalf("a silent server: %v", err)
			}
			for i, took := range inOutage(100, func(i int) {
				var err error
				if i%3 == 2 {
					_, err = e.Records().Swap(t.Context(), fmt.Sprint("r", i), []byte("v"), "", time.Minute)
				} else {
					req := request(fmt.Sprint("n", i))
					req.Wait = i%3 == 1
					_, err = e.Acquire(t.Context(), req)
				}
				if !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("call %d: %v", i, err)
				}
			}) {
				if took > 2*timeout {
					t.Errorf("call %d failed after %v, RetryTimeout is %v", i, took, timeout)
				}
			}
		})
	}
}

// TestShortContextInAnOutage: a caller that allows a moment gets its answer soon after it, though
// the request that it leaves behind must be withdrawn.
func TestShortContextInAnOutage(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for client, e := range map[string]*redislock.Engine{
		"rueidis":  s.engine(nil),
		"go-redis": goredisEngine(t, &redis.UniversalOptions{Addrs: []string{s.server.Addr()}}, nil),
	} {
		s.hold(e, request(client)).free()
		s.server.Freeze(t)
		var total time.Duration
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
			begun := time.Now()
			if _, err := e.Acquire(ctx, request("n")); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", client, err)
			}
			total += time.Since(begun)
			cancel()
		}
		s.server.Thaw(t)
		if total > 5*time.Second { // each took a second when the caller waited for its withdrawal
			t.Errorf("%s: ten calls of 2 ms took %v", client, total)
		}
	}
}

// TestSilentMasterDelaysOnlyItsNames: a hundred callers want names of a silent master. Names of
// the others are granted as fast as before: of their calls hardly any is slow.
func TestSilentMasterDelaysOnlyItsNames(t *testing.T) {
	t.Parallel()
	const (
		frozen = 1
		slow   = 400 * time.Millisecond
	)
	c := redistest.StartRedisCluster(t, 3, "--cluster-node-timeout", "60000") // nobody calls it dead
	for client, e := range map[string]*redislock.Engine{
		"rueidis":  clusterEngineOf(t, c, &redislock.Config{RetryTimeout: 2 * time.Second}),
		"go-redis": goredisEngine(t, &redis.UniversalOptions{Addrs: c.Addrs()}, &redislock.Config{RetryTimeout: 2 * time.Second}),
	} {
		var sick, healthy []string
		for i := 0; len(sick) < 100 || len(healthy) < 10; i++ {
			name := fmt.Sprint(client, i)
			if c.Owner(t, c.Slot(t, "lock:"+name)) == c.Nodes()[frozen] {
				sick = append(sick, name)
			} else {
				healthy = append(healthy, name)
			}
		}
		s := scene{TB: t, server: c.Nodes()[0]}
		s.hold(e, request(healthy[0])).free()
		c.Nodes()[frozen].Freeze(t)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, name := range sick[:100] {
			all.Go(func() {
				for ctx.Err() == nil {
					_, _ = e.Acquire(ctx, try(brief(name)))
				}
			})
		}
		var total, late time.Duration
		calls := 0
		for begun := time.Now(); time.Since(begun) < 8*time.Second; calls++ {
			name := healthy[calls%len(healthy)]
			start := time.Now()
			g, err := e.Acquire(t.Context(), try(request(name)))
			if err != nil {
				t.Fatalf("%s: %s: %v", client, name, err)
			}
			if err := e.Release(t.Context(), driver.Lease{Name: name, Owner: g.Owner, Token: g.Token, TTL: long}); err != nil {
				t.Fatalf("%s: %s: %v", client, name, err)
			}
			took := time.Since(start)
			if total += took; took > slow {
				late += took
			}
		}
		stop()
		all.Wait()
		c.Nodes()[frozen].Thaw(t)
		t.Logf("%s: %d turns in %v, of which %v in slow ones", client, calls, total, late)
		if late > total/2 { // when the master delayed all names, it was more than 70 %; a busy machine has slow turns
			t.Errorf("%s: %v of %v were spent in turns of more than %v", client, late, total, slow)
		}
	}
}
