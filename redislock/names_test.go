package redislock_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/redislock"
)

func number64(t testing.TB, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var oddNames = []string{
	"a b", "a\nb", "\r\n", "a*", "?", "[a]", `\`, "{tag}a", "a{tag}", "a}", "{", "}", "{}", "{}a", "a}{b}", "{a", "lock:n",
	"queue:{lock:n}", "{lock:n}", "fence:", "日本", "%d%s", "'\"", "-1", " ", strings.Repeat("n", 512), strings.Repeat("{", 512),
}

// TestOddNames: every name is held, waited for, handed over, listed and broken
// under its own keys, beside all others.
func TestOddNames(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, prefix := range []string{"", "app*:", "{app}:"} {
		cfg := &redislock.Config{Prefix: prefix}
		a, b := s.engine(cfg), s.engine(cfg)
		holds, waits := map[string]hold{}, map[string]*call{}
		for _, name := range oddNames {
			holds[name] = s.hold(a, request(name))
			if s.server.Do(t, "EXISTS", prefix+"lock:"+name) != "1" {
				t.Errorf("%q is not held at %slock:%s", name, prefix, name)
			}
			waits[name] = s.ask(b, request(name))
		}
		for _, name := range oddNames {
			s.until("it waits", func() bool {
				list, err := a.List(context.Background(), driver.Query{Prefix: name})
				for _, st := range list {
					if st.Name == name && len(st.Waiters) == 1 && len(st.Holders) == 1 {
						return true
					}
				}
				return err != nil
			})
			holds[name].free()
			waits[name].kept()
			if _, err := a.Break(context.Background(), name, "a\ntest"); err != nil {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
}

// TestClusterNames: on a Cluster all keys of a name are in one slot, and a name for
// which that cannot be is refused.
func TestClusterNames(t *testing.T) {
	t.Parallel()
	c := redistest.StartRedisCluster(t, 3)
	e := clusterEngine(t, c)
	for _, name := range oddNames {
		_, err := e.LockKey(name)
		for _, node := range c.Nodes() {
			node.Do(t, "FLUSHALL")
		}
		ctx, cancel := context.WithCancel(context.Background())
		g, acquired := e.Acquire(ctx, request(name))
		cancel()
		if err != nil {
			if !strings.Contains(name, "}") || !errors.Is(acquired, driver.ErrInvalid) {
				t.Errorf("%q: %v, %v", name, err, acquired)
			}
			continue
		}
		if acquired != nil {
			t.Errorf("%q: %v", name, acquired)
			continue
		}
		if err := e.Release(context.Background(), driver.Lease{Name: name, Owner: g.Owner, Token: g.Token}); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		for _, node := range c.Nodes() {
			for key := range strings.SplitSeq(node.Do(t, "KEYS", "*"), "\n") {
				if strings.HasPrefix(key, "fencelock:2:") && !strings.ContainsAny(name, "\r\n") && c.Slot(t, key) != c.Slot(t, "lock:"+name) {
					t.Errorf("%q: %q is in another slot than the lock", name, key)
				}
			}
		}
	}
}

func clusterEngine(t testing.TB, c *redistest.RedisCluster) *redislock.Engine {
	return clusterEngineOf(t, c, nil)
}

func clusterEngineOf(t testing.TB, c *redistest.RedisCluster, cfg *redislock.Config) *redislock.Engine {
	conn := &tap{Conn: redisconn.Rueidis(rueidisClient(t, rueidisOption(c.Addrs()...))), longGrants: true}
	e := redislock.NewConn(conn, patient(cfg))
	t.Cleanup(func() { _ = e.Close() })
	return e
}
