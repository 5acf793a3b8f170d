package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/goredisconn"
	"github.com/fencelock/fencelock/internal/redisconn"
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

// heldUp is a Conn of which requests to all masters have no answer for a while.
type heldUp struct {
	redisconn.Conn
	entered chan struct{} // receives one when such a request is held up
	goOn    chan struct{} // nil as long as requests pass; closed when they may go on
}

func (h *heldUp) Each(ctx context.Context, args ...string) ([]redisconn.Answer, error) {
	if h.goOn != nil {
		select {
		case h.entered <- struct{}{}:
		default:
		}
		<-h.goOn
	}
	return h.Conn.Each(ctx, args...)
}

// TestCheckHoldsUpNoName: a master of a Cluster is silent, and so the check of all masters has no
// answer. Names of the other masters are granted meanwhile.
func TestCheckHoldsUpNoName(t *testing.T) {
	t.Parallel()
	c := redistest.StartRedisCluster(t, 3, "--cluster-node-timeout", "60000")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	t.Cleanup(func() { _ = client.Close() })
	for name, conn := range map[string]redisconn.Conn{
		"rueidis": redisconn.Rueidis(rueidisClient(t, rueidisOption(c.Addrs()...))), "go-redis": goredisconn.New(client),
	} {
		h := &heldUp{Conn: conn, entered: make(chan struct{}, 1)}
		e := redislock.NewConn(h, &redislock.Config{RetryTimeout: 2 * time.Second})
		s := scene{TB: t, server: c.Nodes()[0]}
		s.hold(e, request("n")).free()
		owner := c.Owner(t, c.Slot(t, "lock:n"))
		silent, i := owner, 0
		for ; silent == owner; i++ {
			silent = c.Owner(t, c.Slot(t, fmt.Sprint("lock:", i)))
		}
		sick := fmt.Sprint(i - 1)
		h.goOn = make(chan struct{})
		silent.Freeze(t)
		if _, err := e.Acquire(t.Context(), try(brief(sick))); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s: a name of the silent master: %v", name, err)
		}
		for held := false; !held; {
			s.hold(e, request("n")).free() // the first one starts the check
			select {
			case <-h.entered:
				held = true
			default:
			}
		}
		for range 50 {
			s.hold(e, request("n")).free()
		}
		close(h.goOn)
		silent.Thaw(t)
		_ = e.Close()
	}
}

// TestSilentMasterDelaysOnlyItsNames: a hundred callers want names of a silent master. Names of
// the others are granted as before: none of their requests goes to the silent one.
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
		calls, late := 0, 0
		for begun := time.Now(); time.Since(begun) < 8*time.Second; calls++ {
			name := healthy[calls%len(healthy)]
			start := time.Now()
			g, err := e.Acquire(t.Context(), try(request(name)))
			if err == nil {
				err = e.Release(t.Context(), driver.Lease{Name: name, Owner: g.Owner, Token: g.Token, TTL: long})
			}
			if err != nil { // a busy machine may take longer than RetryTimeout
				t.Logf("%s: %s: %v", client, name, err)
			}
			if err != nil || time.Since(start) > slow {
				late++
			}
		}
		stop()
		all.Wait()
		c.Nodes()[frozen].Thaw(t)
		t.Logf("%s: %d turns, of which %d were slower than %v", client, calls, late, slow)
		if late > calls/2 {
			t.Errorf("%s: %d of %d turns were slow, or failed", client, late, calls)
		}
		if astray := c.Nodes()[frozen].Do(t, "INFO", "errorstats"); strings.Contains(astray, "errorstat_MOVED") {
			t.Errorf("%s: requests for names of other masters went to the silent one: %s", client, astray)
		}
	}
}
