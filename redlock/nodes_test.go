package redlock_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/internal/testkit/verdict"
	"github.com/fencelock/fencelock/redlock"
	"github.com/redis/rueidis"
)

// long is the TTL of a lock that is not to end by time.
const long = 10 * time.Minute

// open makes an engine on servers that may be down, and closes it.
func open(t testing.TB, addrs []string, cfg redlock.Config) *redlock.Engine {
	t.Helper()
	return openThrough(t, addrs, cfg, func(_ int, node redisconn.Conn) redisconn.Conn { return node })
}

// openThrough is open for an engine that sees of each node what way makes of it.
func openThrough(t testing.TB, addrs []string, cfg redlock.Config, way func(i int, node redisconn.Conn) redisconn.Conn) *redlock.Engine {
	t.Helper()
	var nodes []redlock.Node
	for i, addr := range addrs {
		lazy := lazily(addr)
		t.Cleanup(lazy.Close)
		nodes = append(nodes, redisconn.NodeOf(way(i, redisconn.ConnOf(lazy))))
	}
	if cfg.Nodes == nil {
		cfg.Nodes = addrs
	}
	for limit, patience := range map[*time.Duration]time.Duration{&cfg.RetryTimeout: time.Minute, &cfg.NodeLimit: 20 * time.Second, &cfg.MaxTTL: long} {
		if *limit == 0 { // the machine may be slow
			*limit = patience
		}
	}
	e := redlock.New(nodes, &cfg)
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// watched is a node whose calls go through a test: do makes them.
type watched struct {
	redisconn.Conn
	call func(c redisconn.Call, do func() []redisconn.Reply) []redisconn.Reply
}

func (w watched) Eval(ctx context.Context, calls []redisconn.Call) []redisconn.Reply {
	return w.call(calls[0], func() []redisconn.Reply { return w.Conn.Eval(ctx, calls) })
}

func lazily(addr string) *redlock.Lazy {
	return redlock.NewLazy(func() (rueidis.Client, error) { return newClient(addr) })
}

func try(e *redlock.Engine, name string, ttl time.Duration) (driver.Grant, error) {
	return e.Acquire(context.Background(), driver.Request{Name: name, TTL: ttl})
}

func take(t testing.TB, e *redlock.Engine, name string, ttl time.Duration) (driver.Grant, driver.Lease) {
	t.Helper()
	g, err := try(e, name, ttl)
	if err != nil {
		t.Fatalf("acquire %q: %v", name, err)
	}
	return g, leaseOf(name, g, ttl)
}

// retryAcquire is take for a name that is free, or soon: on a busy machine an attempt may
// fail, and be in the way of the next one until it is taken back.
func retryAcquire(t testing.TB, e *redlock.Engine, name string, ttl time.Duration) (g driver.Grant, l driver.Lease) {
	t.Helper()
	eventually(t, "a lock", func() (ok bool) {
		var err error
		g, err = try(e, name, ttl)
		return err == nil
	})
	return g, leaseOf(name, g, ttl)
}

func leaseOf(name string, g driver.Grant, ttl time.Duration) driver.Lease {
	return driver.Lease{Name: name, Owner: g.Owner, Token: g.Token, TTL: ttl}
}

func release(t testing.TB, e *redlock.Engine, l driver.Lease) {
	t.Helper()
	if err := e.Release(context.Background(), l); err != nil {
		t.Fatalf("release %q: %v", l.Name, err)
	}
}

// warmUp makes the engine know its nodes, for tests in which it gives up early.
func warmUp(t testing.TB, e *redlock.Engine) int64 {
	t.Helper()
	var g driver.Grant
	ttl := min(10*time.Second, e.Traits().MaxTTL)
	eventually(t, "a first lock", func() bool {
		var err error
		g, err = try(e, "warm", ttl)
		return err == nil
	})
	release(t, e, leaseOf("warm", g, ttl))
	return g.Token
}

// eventually fails the test unless yes comes true within three minutes.
func eventually(t testing.TB, what string, yes func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !yes(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not seen within three minutes: %s", what)
		}
	}
}

func TestSetsThatAreNoGood(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 3)
	addrs := w.addrs()
	replica := redistest.StartRedisReplica(t, w[0])
	cluster := redistest.StartRedis(t, "--cluster-enabled", "yes")
	evicting := redistest.StartRedis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	for _, c := range []struct {
		what  string
		addrs []string
		names []string
		says  string
	}{
		{"none", nil, nil, "not 0"},
		{"one", addrs[:1], nil, "not 1"},
		{"an even number", addrs[:2], nil, "not 2"},
		{"a name twice", []string{addrs[0], addrs[1], addrs[1]}, nil, "named twice"},
		{"a server twice", []string{addrs[0], addrs[1], addrs[1]}, []string{"a", "b", "c"}, "are the same server"},
		{"a replica", []string{addrs[0], addrs[1], replica.Addr()}, nil, "is a replica of 127.0.0.1:"},
		{"a node of a cluster", []string{addrs[0], addrs[1], cluster.Addr()}, nil, "is a node of a Redis Cluster"},
		{"a server that evicts", []string{addrs[0], addrs[1], evicting.Addr()}, nil, "evicts keys"},
	} {
		e := open(t, c.addrs, redlock.Config{Nodes: c.names})
		_, err := try(e, "x", time.Second)
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", c.what, err, c.says)
		}
		if c.what == "a replica" || c.what == "a server that evicts" {
			verdict.Is(t, "Redlock: a node is a replica, or evicts keys", verdict.Refused, verdict.OfError(err))
		}
		want := driver.ErrConfig
		if c.names == nil && len(c.addrs) < 3 || c.what == "a name twice" {
			want = driver.ErrInvalid // it shows without asking
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", c.what, err, want)
		}
	}
	conn := lazily(addrs[0])
	defer conn.Close()
	e := redlock.New([]redlock.Node{conn, lazily(addrs[1]), conn}, nil)
	if _, err := try(e, "x", time.Second); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a connection twice: got %v, want ErrInvalid", err)
	}
}

func TestTwoOfFiveDown(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redlock: fewer than half of the nodes are down", verdict.Safe)
	w := startNodes(t, 5)
	w[1].Kill(t)
	w[3].Kill(t)
	e := open(t, w.addrs(), redlock.Config{})
	for range 20 {
		g, l := take(t, e, "x", long)
		if err := e.Renew(context.Background(), []driver.Lease{l})[0]; err != nil {
			t.Fatal(err)
		}
		if _, err := try(e, "x", time.Second); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("under holder %+v: got %v, want ErrHeld", g, err)
		}
		release(t, e, l)
	}
}

// TestThreeOfFiveDown wants an error that names each node, within a bounded time,
// and that the engine recovers as soon as a node answers again.
func TestThreeOfFiveDown(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 5, "--appendonly", "yes")
	e := open(t, w.addrs(), redlock.Config{RetryTimeout: 500 * time.Millisecond, NodeLimit: time.Second})
	last := warmUp(t, e)
	w[0].Kill(t)
	w[2].Kill(t)
	w[4].Freeze(t)
	begun := time.Now()
	_, err := try(e, "x", 10*time.Second)
	if !errors.Is(err, driver.ErrUnavailable) {
		t.Fatalf("with three nodes down: got %v, want ErrUnavailable", err)
	}
	verdict.Is(t, "Redlock: half or more of the nodes are down", verdict.Refused, verdict.OfError(err))
	if d := time.Since(begun); d > 30*time.Second {
		t.Errorf("it took %v to say so", d)
	}
	for _, i := range []int{0, 2, 4} {
		if !strings.Contains(err.Error(), w[i].Addr()) {
			t.Errorf("%v does not name %s", err, w[i].Addr())
		}
	}
	w[4].Thaw(t)
	var again driver.Grant
	eventually(t, "a lock once a frozen node is thawed", func() bool {
		again, err = try(e, "warm", 10*time.Second)
		return err == nil
	})
	if again.Token <= last {
		t.Errorf("token %d after %d", again.Token, last)
	}
}

// TestFrozenNode: a frozen node costs nothing, because the others are a majority;
// and what is sent to it does not pile up.
func TestFrozenNode(t *testing.T) {
	w := startNodes(t, 5)
	patient := open(t, w.addrs(), redlock.Config{NodeLimit: 2 * time.Minute})
	const limit = 3 * time.Second
	quick := open(t, w.addrs(), redlock.Config{NodeLimit: limit})
	before := max(median(t, patient, "p", 10), median(t, quick, "q", 100))
	for _, r := range w { // a majority must be free without the one that is frozen
		eventually(t, "a release on every node", func() bool { return r.Do(t, "EXISTS", "lock:p", "lock:q") == "0" })
	}
	w[0].Freeze(t)
	begun := time.Now()
	median(t, patient, "p", 10)
	if d := time.Since(begun); d > 2*time.Minute {
		t.Errorf("ten locks took %v with a node frozen and a limit of 2 min", d)
	}
	first := median(t, quick, "q", 1)
	var after time.Duration
	eventually(t, "300 locks that leave no goroutines at the frozen node", func() bool {
		time.Sleep(limit + 100*time.Millisecond) // a busy machine ends it later
		goroutines := runtime.NumGoroutine()
		after = median(t, quick, "q", 300)
		return runtime.NumGoroutine()-goroutines <= 50
	})
	t.Logf("acquire, renew and release: %v with five nodes, %v at first with one frozen, then %v", before, first, after)
	w[0].Thaw(t)
	for _, e := range []*redlock.Engine{patient, quick} {
		eventually(t, "a lock once the node is thawed", func() bool { // which is behind
			g, err := try(e, "x", long)
			if err == nil {
				release(t, e, leaseOf("x", g, long))
			}
			return err == nil
		})
	}
}

// median returns how long n locks took to acquire, renew and release. The name is
// the engine's alone. It waits, as not all nodes need to know of the last release.
func median(t *testing.T, e *redlock.Engine, name string, n int) time.Duration {
	t.Helper()
	var took []time.Duration
	for range n {
		begun := time.Now()
		g, err := e.Acquire(t.Context(), driver.Request{Name: name, TTL: long, Wait: true})
		if err != nil {
			t.Fatal(err)
		}
		l := leaseOf(name, g, long)
		if err := e.Renew(context.Background(), []driver.Lease{l})[0]; err != nil {
			t.Fatal(err)
		}
		release(t, e, l)
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	return took[n/2]
}

// TestGhosts: what a frozen node is asked for in vain does not close the name
// once it is thawed.
func TestGhosts(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redlock: an answer is lost, or a request arrives twice", verdict.Safe)
	w := startNodes(t, 3)
	e := open(t, w.addrs(), redlock.Config{RetryTimeout: time.Millisecond, NodeLimit: time.Second})
	warmUp(t, e)
	w[0].Freeze(t)
	w[1].Freeze(t)
	for range 3 {
		if _, err := try(e, "x", long); !errors.Is(err, driver.ErrUnavailable) {
			t.Fatalf("with two of three nodes frozen: got %v, want ErrUnavailable", err)
		}
	}
	w[0].Thaw(t)
	w[1].Thaw(t)
	eventually(t, "a lock once the nodes are thawed", func() bool {
		_, err := try(e, "x", long)
		return err == nil
	})
}

// A name that two nodes show as held is not held when the other three are down:
// nobody knows. Neither a try nor a wait may take it for an answer.
func TestMinorityIsNoAnswer(t *testing.T) {
	t.Parallel()
	w := startNodes(t, 5)
	for _, up := range w[:2] {
		up.Do(t, "SET", "lock:x", "somebody", "PX", "60000")
	}
	for _, down := range w[2:] {
		down.Kill(t)
	}
	e := open(t, w.addrs(), redlock.Config{RetryTimeout: 500 * time.Millisecond})
	for _, wait := range []bool{false, true} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		_, err := e.Acquire(ctx, driver.Request{Name: "x", TTL: 10 * time.Second, Wait: wait})
		cancel()
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrHeld) {
			t.Errorf("wait %t: %v", wait, err)
		}
	}
}

// A node that is down does not hide that the others show a name as held.
func TestHeldWithANodeDown(t *testing.T) {
	t.Parallel()
	verdict.Is(t, "Redlock: fewer than half of the nodes are down", verdict.Safe)
	w := startNodes(t, 3)
	e, other := open(t, w.addrs(), redlock.Config{}), open(t, w.addrs(), redlock.Config{})
	_, lease := take(t, e, "x", long)
	defer release(t, e, lease)
	w[0].Kill(t)
	if _, err := try(other, "x", 10*time.Second); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("held on two of three: %v", err)
	}
}
