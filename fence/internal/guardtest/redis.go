//go:build unix

package guardtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/fence/internal/redisfloor"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// Redis is a guard for Redis with some client.
type Redis interface {
	Set(ctx context.Context, key, value string, ttl time.Duration) error
	HSet(ctx context.Context, key string, fields ...string) error
	Del(ctx context.Context, key string) error
	// Run is Eval with its result as text.
	Run(ctx context.Context, resource, script string, keys, args []string) (string, error)
}

// Open creates a guard with a new client of the servers, which is closed at the end of the test.
// Several servers are a Cluster. keep is how long floors are stored.
type Open func(t testing.TB, keep time.Duration, addrs ...string) Redis

// RunRedis tests the guard of a client.
func RunRedis(t *testing.T, open Open) {
	server := redistest.StartRedis(t)
	g := open(t, 0, server.Addr())
	for name, r := range resources(server, g, "x") {
		if err := Run(t.Context(), r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Run("errors", func(t *testing.T) { checkErrors(t, server, g) })
	t.Run("keys", func(t *testing.T) { checkKeys(t, g) })
	t.Run("keep", func(t *testing.T) { checkKeep(t, server, open) })
	t.Run("many", func(t *testing.T) { checkMany(t, server, g) })
	t.Run("lost answer", func(t *testing.T) { checkLostAnswer(t, server, open) })
	t.Run("mutants", func(t *testing.T) { checkMutants(t, server, g) })
	t.Run("cluster", func(t *testing.T) {
		cluster := redistest.StartRedisCluster(t, 2)
		g := open(t, 0, cluster.Addrs()...)
		checkSlots(t, cluster, g)
		checkMovingSlot(t, cluster, g)
	})
}

// resources returns one resource per command.
func resources(server *redistest.Redis, g Redis, run string) map[string]Resource {
	read := func(args ...string) func() (string, error) {
		return func() (string, error) {
			value, err := server.TryDo(args...)
			return strings.TrimPrefix(value, "<nil>"), err
		}
	}
	set, hash, script, del := run+"set", "{"+run+"}hash", "{"+run+"}script", run+"del"
	return map[string]Resource{
		"SET":  {Name: set, Write: func(ctx context.Context, v string) error { return g.Set(ctx, set, v, time.Hour) }, Read: read("GET", set)},
		"HSET": {Name: hash, Write: func(ctx context.Context, v string) error { return g.HSet(ctx, hash, "a", "b", "v", v) }, Read: read("HGET", hash, "v")},
		"EVAL": {Name: script, Write: func(ctx context.Context, v string) error {
			got, err := g.Run(ctx, script, "local v = ARGV[1] redis.call('SET', KEYS[2], v) return v -- the end",
				[]string{script, "{" + run + "}other"}, []string{v})
			if err == nil && got != v {
				return fmt.Errorf("the script returned %q", got)
			}
			return err
		}, Read: read("GET", "{"+run+"}other")},
		"DEL": {Name: del, Write: func(ctx context.Context, v string) error {
			// Log the deletions that succeed, because each of them removes the key.
			if _, err := server.TryDo("SET", del, "there"); err != nil {
				return err
			}
			if err := g.Del(ctx, del); err != nil {
				return err
			}
			_, err := server.TryDo("SET", del+" log", v)
			return err
		}, Read: read("GET", del+" log")},
	}
}

// checkErrors: a refused call changes nothing, and errors of the server are returned unchanged.
func checkErrors(t *testing.T, server *redistest.Redis, g Redis) {
	server.Do(t, "SET", "xdel", "there")
	if err := g.Del(Under(t, 5), "xdel"); !errors.Is(err, fence.ErrStale) || server.Do(t, "GET", "xdel") != "there" {
		t.Errorf("a late deletion: %v, the key has %q", err, server.Do(t, "GET", "xdel"))
	}
	// After an error of the server or a script the next write succeeds.
	if err := g.HSet(Under(t, 1<<61), "xset", "a", "b"); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("HSet of a string: %v", err)
	}
	if n, err := g.Run(Under(t, 1<<61), "xset", "return '7'", nil, nil); n != "7" || err != nil {
		t.Errorf("a script without keys returns %v, %v", n, err)
	}
	// A floor key that does not contain a number is an error.
	server.Do(t, "SET", "floor:{odd}", "high")
	if err := g.Set(Under(t, 1), "odd", "", 0); err == nil || errors.Is(err, fence.ErrStale) {
		t.Errorf("a floor that is no number: %v", err)
	}
	ended, end := context.WithCancel(Under(t, 1))
	end()
	if err := g.Set(ended, "ended", "v", 0); !errors.Is(err, context.Canceled) || server.Do(t, "EXISTS", "ended", "floor:{ended}") != "0" {
		t.Errorf("under a context that has ended: %v", err)
	}
}

// checkKeys: keys that cannot be guarded. A floor is not a resource: callers that choose keys could
// lower the floors of others.
func checkKeys(t *testing.T, g Redis) {
	for _, key := range []string{"a}b", "", "{}x"} { // no key in its slot, or several slots
		if err := g.Set(Under(t, 1), key, "", 0); !errors.Is(err, fence.ErrResource) {
			t.Errorf("the key %q: %v", key, err)
		}
	}
	for _, key := range []string{"victim", "{b}victim"} {
		if err := g.Set(Under(t, 9), key, "", 0); err != nil {
			t.Errorf("the key %q: %v", key, err)
		}
	}
	for _, key := range []string{"floor:{victim}", "floor:{b}:{b}victim"} {
		for _, err := range []error{g.Set(Under(t, 1), key, "1", 0), g.Del(Under(t, 1), key)} {
			if !errors.Is(err, fence.ErrResource) {
				t.Errorf("the floor %q: %v", key, err)
			}
		}
	}
	for _, key := range []string{"floor:{3}:door", "floor:3", "floor:{b}victim"} {
		if err := g.Set(Under(t, 1), key, "", 0); err != nil {
			t.Errorf("the key %q, which looks like a floor: %v", key, err)
		}
	}
	if _, err := g.Run(Under(t, 1), "{a}1", "return 1", []string{"{a}2", "{b}1"}, nil); !errors.Is(err, fence.ErrResource) {
		t.Errorf("keys of two slots: %v", err)
	}
}

// checkKeep: a floor is stored for ever, or as long as Keep says.
func checkKeep(t *testing.T, server *redistest.Redis, open Open) {
	for _, c := range []struct {
		keep time.Duration
		left string // the rest of the floor's TTL in ms: only the number of digits is compared
	}{
		{time.Hour, "3600000"}, {0, "-1"}, {math.MaxInt64, "9223372036854"}, {-1, "-1"},
	} {
		err := open(t, c.keep, server.Addr()).Set(Under(t, 1), "kept", "v", math.MaxInt64)
		if left := server.Do(t, "PTTL", "floor:{kept}"); err != nil || len(left) != len(c.left) {
			t.Errorf("Keep %v: %v, the floor has %s ms left", c.keep, err, left)
		}
		if left := server.Do(t, "PTTL", "kept"); len(left) != len("9223372036854") {
			t.Errorf("the value has %s ms left", left)
		}
	}
}

// checkMany: a guard accepts as many arguments as Redis does.
func checkMany(t *testing.T, server *redistest.Redis, g Redis) {
	fields := make([]string, 0, 20000)
	for n := range cap(fields) / 2 {
		fields = append(fields, fmt.Sprint("field ", n), fmt.Sprint(n))
	}
	if err := g.HSet(Under(t, 1), "many", fields...); err != nil || server.Do(t, "HLEN", "many") != "10000" {
		t.Errorf("10,000 fields: %v, the hash has %s", err, server.Do(t, "HLEN", "many"))
	}
	if got := server.Do(t, "HGET", "many", "field 9999"); got != "9999" {
		t.Errorf("the last field has %q", got)
	}
	if n, err := g.Run(Under(t, 1), "many", "return tostring(#ARGV)", nil, fields); err != nil || n != fmt.Sprint(len(fields)) {
		t.Errorf("a script with %d arguments finds %s, %v", len(fields), n, err)
	}
	for _, odd := range [][]string{nil, {"a"}, fields[:len(fields)-1]} {
		if err := g.HSet(Under(t, 1), "odd fields", odd...); err == nil || server.Do(t, "EXISTS", "odd fields") != "0" {
			t.Errorf("%d words are no fields and values: %v", len(odd), err)
		}
	}
}

// checkLostAnswer: a script whose answer was lost is not run twice.
func checkLostAnswer(t *testing.T, server *redistest.Redis, open Open) {
	proxy, err := faults.NewProxy(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	g := open(t, 0, proxy.Addr())
	count := func() error {
		_, err := g.Run(Under(t, 1), "counter", "return tostring(redis.call('INCR', KEYS[1]))", []string{"counter"}, nil)
		return err
	}
	if err := count(); err != nil { // the server now has the script in its cache
		t.Fatal(err)
	}
	cut := proxy.SwallowReply("counter")
	if err := count(); err == nil || errors.Is(err, fence.ErrStale) {
		t.Errorf("a script whose answer was lost: %v, want what the connection says", err)
	}
	<-cut
	if got := server.Do(t, "GET", "counter"); got != "2" {
		t.Errorf("two calls, of which the answer to the second was lost, counted %s", got)
	}
}

// checkMutants: deliberately broken guards must fail.
func checkMutants(t *testing.T, server *redistest.Redis, g Redis) {
	whole := redisfloor.Guard
	defer func() { redisfloor.Guard = whole }()
	for name, m := range map[string][2]string{
		"no comparison":    {"if less(ARGV[1], stored)", "if false"},
		"stores the token": {"floor = ARGV[2]", "floor = ARGV[1]"},
		"lowers the floor": {"if less(stored, ARGV[2]) then", "if true then"},
		"never raises":     {"if less(stored, ARGV[2]) then", "if false then"},
		"numbers":          {"return #a < #b or (#a == #b and a < b)", "return tonumber(a) < tonumber(b)"},
		"text":             {"return #a < #b or (#a == #b and a < b)", "return a < b"},
	} {
		redisfloor.Guard = strings.Replace(whole, m[0], m[1], 1)
		if redisfloor.Guard == whole {
			t.Errorf("%s: changes nothing", name)
		}
		for command, r := range resources(server, g, name) {
			err := Run(t.Context(), r)
			if err == nil {
				t.Errorf("%s, %s: passes", name, command)
			}
			t.Log(name, command, err)
		}
	}
}

// checkSlots: on a Cluster the floor is in the slot of its key, with or without a hash tag, and
// each script is sent to the node of its key.
func checkSlots(t *testing.T, cluster *redistest.RedisCluster, g Redis) {
	if floor, err := redisfloor.Key("x{}"); err == nil {
		t.Errorf("x{}: the floor is at %q", floor)
	}
	for _, key := range []string{"a", "b", "c", "x{a}", "{a}y", "{a", "{{a}}", "z{b}{c}"} {
		floor, err := redisfloor.Key(key)
		if err != nil || cluster.Slot(t, floor) != cluster.Slot(t, key) {
			t.Errorf("%q: the floor is at %q, %v", key, floor, err)
		}
		if err := g.Set(Under(t, 2), key, "v", 0); err != nil {
			t.Errorf("%q: %v", key, err)
		}
		if err := g.Set(Under(t, 1), key, "late", 0); !errors.Is(err, fence.ErrStale) {
			t.Errorf("%q: %v", key, err)
		}
		if got := cluster.Owner(t, cluster.Slot(t, key)).Do(t, "GET", key); got != "v" {
			t.Errorf("%q has %q", key, got)
		}
	}
}

// checkMovingSlot: if a key has moved to another node and its floor has not, a write waits until
// both are on the same node.
func checkMovingSlot(t *testing.T, cluster *redistest.RedisCluster, g Redis) {
	if err := g.Set(Under(t, 2), "moves", "v", 0); err != nil {
		t.Fatal(err)
	}
	slot := cluster.Slot(t, "moves")
	from := cluster.Owner(t, slot)
	to := cluster.Nodes()[0]
	if to == from {
		to = cluster.Nodes()[1]
	}
	cluster.BeginMigration(t, slot, from, to)
	cluster.MoveKeys(t, slot, from, to, "moves")
	time.AfterFunc(100*time.Millisecond, func() {
		cluster.MoveKeys(t, slot, from, to)
		cluster.EndMigration(t, slot, from, to)
	})
	if err := g.Set(Under(t, 3), "moves", "w", 0); err != nil {
		t.Errorf("while the slot moves: %v", err)
	}
	if err := g.Set(Under(t, 2), "moves", "late", 0); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a late write: %v", err)
	}
}
