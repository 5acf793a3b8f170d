//go:build unix

package fenceredis_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/fence/fenceredis"
	"github.com/fencelock/fencelock/fence/internal/exam"
	"github.com/fencelock/fencelock/fence/internal/redisfloor"
	"github.com/fencelock/fencelock/internal/testkit/faults"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
	"github.com/fencelock/fencelock/memlock"
)

// A holder that was stopped for longer than its lease writes late, and bounces.
func ExampleGuard_Set() {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{os.Getenv("REDIS_ADDR")}, DisableCache: true})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	engine := memlock.New(nil)
	locks, guard := fencelock.New(engine, nil), fenceredis.New(client, nil)
	ctx := context.Background()

	paused, err := locks.Acquire(ctx, "invoice:42")
	if err != nil {
		log.Fatal(err)
	}
	inFlight := context.WithoutCancel(paused.Context()) // it has checked its context, and is stopped
	engine.Lose("invoice:42")                           // its lease ends

	err = locks.Do(ctx, "invoice:42", func(ctx context.Context) error {
		return guard.Set(ctx, "invoice:42", "paid", 0)
	})
	fmt.Println("next:", err)
	err = guard.Set(inFlight, "invoice:42", "cancelled", 0)
	fmt.Println("late:", errors.Is(err, fence.ErrStale))
}

// under returns a context with the fence of an exclusive holder.
func under(t *testing.T, token int64) context.Context {
	return fence.NewContext(t.Context(), fence.Fence{Name: "lock", Token: token, Floor: token})
}

// resources are one for each command.
func resources(server *redistest.Redis, g *fenceredis.Guard, run string) map[string]exam.Resource {
	read := func(args ...string) func() (string, error) {
		return func() (string, error) {
			value, err := server.TryDo(args...)
			return strings.TrimPrefix(value, "<nil>"), err
		}
	}
	set, hash, script, del := run+"set", "{"+run+"}hash", "{"+run+"}script", run+"del"
	return map[string]exam.Resource{
		"SET":  {Name: set, Write: func(ctx context.Context, v string) error { return g.Set(ctx, set, v, time.Hour) }, Read: read("GET", set)},
		"HSET": {Name: hash, Write: func(ctx context.Context, v string) error { return g.HSet(ctx, hash, "a", "b", "v", v) }, Read: read("HGET", hash, "v")},
		"EVAL": {Name: script, Write: func(ctx context.Context, v string) error {
			got, err := g.Eval(ctx, script, "local v = ARGV[1] redis.call('SET', KEYS[2], v) return v -- the end",
				[]string{script, "{" + run + "}other"}, []string{v}).ToString()
			if err == nil && got != v {
				return fmt.Errorf("the script returned %q", got)
			}
			return err
		}, Read: read("GET", "{"+run+"}other")},
		"DEL": {Name: del, Write: func(ctx context.Context, v string) error {
			// A list of what deletions let through: each one that passes takes the key away.
			server.TryDo("SET", del, "there")
			if err := g.Del(ctx, del); err != nil {
				return err
			}
			_, err := server.TryDo("SET", del+" log", v)
			return err
		}, Read: read("GET", del+" log")},
	}
}

func TestGuard(t *testing.T) {
	server := redistest.StartRedis(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	g := fenceredis.New(client, nil)
	for name, r := range resources(server, g, "x") {
		if err := exam.Run(t.Context(), r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	t.Setenv("REDIS_ADDR", server.Addr())
	if got, want := exam.Prints(ExampleGuard_Set), "next: <nil>\nlate: true\n"; got != want {
		t.Errorf("the example prints %q, want %q", got, want)
	}

	// A refused deletion deletes nothing.
	server.Do(t, "SET", "xdel", "there")
	if err := g.Del(under(t, 5), "xdel"); !errors.Is(err, fence.ErrStale) || server.Do(t, "GET", "xdel") != "there" {
		t.Errorf("a late deletion: %v, the key has %q", err, server.Do(t, "GET", "xdel"))
	}
	// Errors of the server and of a script are themselves; the next write goes on.
	if err := g.HSet(under(t, 1<<61), "xset", "a", "b"); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("HSET of a string: %v", err)
	}
	if n, err := g.Eval(under(t, 1<<61), "xset", "return 7", nil, nil).AsInt64(); n != 7 || err != nil {
		t.Errorf("a script without keys returns %v, %v", n, err)
	}
	// No key in its slot, or several slots.
	for _, key := range []string{"a}b", "", "{}x"} {
		if err := g.Set(under(t, 1), key, "", 0); !errors.Is(err, fenceredis.ErrKey) {
			t.Errorf("the key %q: %v", key, err)
		}
	}
	// A floor is no resource: whoever chooses keys could lower those of others.
	for _, key := range []string{"victim", "{b}victim"} {
		if err := g.Set(under(t, 9), key, "", 0); err != nil {
			t.Errorf("the key %q: %v", key, err)
		}
	}
	for _, key := range []string{"floor:{victim}", "floor:{b}:{b}victim"} {
		if err := g.Set(under(t, 1), key, "1", 0); !errors.Is(err, fenceredis.ErrKey) {
			t.Errorf("the floor %q: %v", key, err)
		}
		if err := g.Del(under(t, 1), key); !errors.Is(err, fenceredis.ErrKey) {
			t.Errorf("the floor %q: %v", key, err)
		}
	}
	for _, key := range []string{"floor:{3}:door", "floor:3", "floor:{b}victim"} {
		if err := g.Set(under(t, 1), key, "", 0); err != nil {
			t.Errorf("the key %q, which looks like a floor: %v", key, err)
		}
	}
	if err := g.Eval(under(t, 1), "{a}1", "return 1", []string{"{a}2", "{b}1"}, nil).Error(); !errors.Is(err, fenceredis.ErrKey) {
		t.Errorf("keys of two slots: %v", err)
	}
	// What stands in the floor's place is no floor.
	server.Do(t, "SET", "floor:{odd}", "high")
	if err := g.Set(under(t, 1), "odd", "", 0); err == nil || errors.Is(err, fence.ErrStale) {
		t.Errorf("a floor that is no number: %v", err)
	}
	// A floor is kept for ever, unless it is to be kept for so long.
	if ttl := server.Do(t, "PTTL", "floor:{xset}"); ttl != "-1" {
		t.Errorf("a floor has %s ms left", ttl)
	}
	if err := fenceredis.New(client, &fenceredis.Config{Keep: time.Hour}).Set(under(t, 1), "kept", "", 0); err != nil {
		t.Error(err)
	}
	if ttl := server.Do(t, "PTTL", "floor:{kept}"); len(ttl) != len("3600000") {
		t.Errorf("a floor that is kept for an hour has %s ms left", ttl)
	}
	if err := g.Set(under(t, 1), "kept", "", 0); err != nil || server.Do(t, "PTTL", "floor:{kept}") != "-1" {
		t.Errorf("a floor that is to be kept for ever has %s ms left, %v", server.Do(t, "PTTL", "floor:{kept}"), err)
	}
	ended, end := context.WithCancel(under(t, 1))
	end()
	if err := g.Set(ended, "ended", "v", 0); !errors.Is(err, context.Canceled) || server.Do(t, "EXISTS", "ended", "floor:{ended}") != "0" {
		t.Errorf("under a context that has ended: %v", err)
	}
	checkMany(t, server, g)
	checkKeep(t, server, client)
	checkLostAnswer(t, server)
	checkMutants(t, server, g)
}

// checkMany: what Redis takes at once, a guard takes too.
func checkMany(t *testing.T, server *redistest.Redis, g *fenceredis.Guard) {
	fields := make([]string, 0, 20000)
	for n := range cap(fields) / 2 {
		fields = append(fields, fmt.Sprint("field ", n), fmt.Sprint(n))
	}
	if err := g.HSet(under(t, 1), "many", fields...); err != nil || server.Do(t, "HLEN", "many") != "10000" {
		t.Errorf("10,000 fields: %v, the hash has %s", err, server.Do(t, "HLEN", "many"))
	}
	if got := server.Do(t, "HGET", "many", "field 9999"); got != "9999" {
		t.Errorf("the last field has %q", got)
	}
	n, err := g.Eval(under(t, 1), "many", "return #ARGV", nil, fields).AsInt64()
	if err != nil || n != int64(len(fields)) {
		t.Errorf("a script with %d arguments finds %d, %v", len(fields), n, err)
	}
	for _, odd := range [][]string{nil, {"a"}, fields[:len(fields)-1]} {
		if err := g.HSet(under(t, 1), "odd fields", odd...); err == nil || server.Do(t, "EXISTS", "odd fields") != "0" {
			t.Errorf("%d words are no fields and values: %v", len(odd), err)
		}
	}
}

// checkKeep: the longest and the shortest time that a floor can be kept.
func checkKeep(t *testing.T, server *redistest.Redis, client rueidis.Client) {
	for keep, want := range map[time.Duration]func(ms string) bool{
		math.MaxInt64: func(ms string) bool { return len(ms) == len("9223372036854") },
		-1:            func(ms string) bool { return ms == "-1" },
	} {
		g := fenceredis.New(client, &fenceredis.Config{Keep: keep})
		if err := g.Set(under(t, 1), "keep", "v", math.MaxInt64); err != nil || !want(server.Do(t, "PTTL", "floor:{keep}")) {
			t.Errorf("Keep %v: %v, the floor has %s ms left", keep, err, server.Do(t, "PTTL", "floor:{keep}"))
		}
		if ms := server.Do(t, "PTTL", "keep"); len(ms) != len("9223372036854") {
			t.Errorf("the value has %s ms left", ms)
		}
	}
}

// checkLostAnswer: a script whose answer was lost is not run twice.
func checkLostAnswer(t *testing.T, server *redistest.Redis) {
	proxy, err := faults.NewProxy(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{proxy.Addr()}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	g := fenceredis.New(client, nil)
	count := func() error {
		return g.Eval(under(t, 1), "counter", "return redis.call('INCR', KEYS[1])", []string{"counter"}, nil).Error()
	}
	if err := count(); err != nil { // the server knows the script now
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

// checkMutants: a guard without one of its parts does not pass.
func checkMutants(t *testing.T, server *redistest.Redis, g *fenceredis.Guard) {
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
			err := exam.Run(t.Context(), r)
			if err == nil {
				t.Errorf("%s, %s: passes", name, command)
			}
			t.Log(name, command, err)
		}
	}
}

// On a Cluster the floor lies in the slot of its key, with a hash tag or without.
func TestCluster(t *testing.T) {
	cluster := redistest.StartRedisCluster(t, 2)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: cluster.Addrs(), DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	g := fenceredis.New(client, nil)
	for _, key := range []string{"a", "b", "c", "x{a}", "{a}y", "{a", "{{a}}", "x{}", "z{b}{c}"} {
		floor, err := redisfloor.Key(key)
		if key == "x{}" {
			if err == nil {
				t.Errorf("%q: the floor is at %q", key, floor)
			}
			continue
		}
		if err != nil || cluster.Slot(floor) != cluster.Slot(key) {
			t.Errorf("%q: the floor is at %q, %v", key, floor, err)
		}
		if err := g.Set(under(t, 2), key, "v", 0); err != nil {
			t.Errorf("%q: %v", key, err)
		}
		if err := g.Set(under(t, 1), key, "v", 0); !errors.Is(err, fence.ErrStale) {
			t.Errorf("%q: %v", key, err)
		}
	}
}

// A key that has moved to another node before its floor: a write waits until both are in
// one place.
func TestMovingSlot(t *testing.T) {
	cluster := redistest.StartRedisCluster(t, 2)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: cluster.Addrs(), DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	g := fenceredis.New(client, nil)
	if err := g.Set(under(t, 2), "a", "v", 0); err != nil {
		t.Fatal(err)
	}
	slot := cluster.Slot("a")
	from := cluster.Owner(t, slot)
	to := cluster.Nodes()[0]
	if to == from {
		to = cluster.Nodes()[1]
	}
	cluster.BeginMigration(t, slot, from, to)
	cluster.MoveKeys(t, slot, from, to, "a")
	time.AfterFunc(100*time.Millisecond, func() {
		cluster.MoveKeys(t, slot, from, to)
		cluster.EndMigration(t, slot, from, to)
	})
	if err := g.Set(under(t, 3), "a", "w", 0); err != nil {
		t.Errorf("while the slot moves: %v", err)
	}
	if err := g.Set(under(t, 2), "a", "late", 0); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a late write: %v", err)
	}
}
