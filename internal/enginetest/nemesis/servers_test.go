//go:build linux

package nemesis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/enginetest"
	"github.com/fencelock/fencelock/pglock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redlock"
)

// A kind of engine: its servers, how to reach them, and what may happen to them.
type kind struct {
	start func(testing.TB) servers
	open  func(addrs []string) (driver.Engine, error)
	safe  []string // faults after which the engine promises one holder
	all   []string // faults of which its page says that they are unsafe, as well
}

// servers are those of one engine. Their number is that of addrs.
type servers struct {
	addrs  []string
	pause  func(i int)
	resume func(i int)
	crash  func(i int)                             // and starts it again
	cut    func(i int, r *rand.Rand)               // ends about half of the connections
	still  func(i int, r *rand.Rand) (thaw func()) // stops what serves one of them; nil if it cannot
	clock  *enginetest.Clock                       // of the last server
}

var kinds map[string]kind

func init() { // the workers' functions refer to it
	redisSafe := append([]string{storm, pause, crash}, network...)
	kinds = map[string]kind{
		"redis": {
			start: func(t testing.TB) servers { return startRedis(t, 1, "--appendonly", "yes") },
			open:  func(addrs []string) (driver.Engine, error) { return openRedis(addrs, false) },
			safe:  redisSafe,
			all:   append([]string{clock}, redisSafe...),
		},
		"redis-quarantine": {
			start: func(t testing.TB) servers {
				s := startRedis(t, 1)
				initialise(t, s.addrs, "redis-quarantine")
				return s
			},
			open: func(addrs []string) (driver.Engine, error) { return openRedis(addrs, true) },
			safe: redisSafe,
			all:  append([]string{clock}, redisSafe...),
		},
		"redlock": {
			start: func(t testing.TB) servers {
				s := startRedis(t, 3)
				initialise(t, s.addrs, "redlock")
				return s
			},
			open: openRedlock,
			safe: redisSafe,
			all:  append([]string{clock}, redisSafe...),
		},
		"postgres": {
			start: startPostgres,
			open:  openPostgres,
			safe:  []string{kill, freeze, late, delay, stall, drop, pause, still},
			all:   append([]string{storm, pause, crash, clock, still}, network...),
		},
	}
}

// initialise declares servers new.
func initialise(t testing.TB, addrs []string, kind string) {
	t.Helper()
	e, err := kinds[kind].open(addrs)
	if err == nil {
		err = e.(interface{ Init(context.Context) error }).Init(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func startRedis(t testing.TB, n int, settings ...string) servers {
	t.Helper()
	s := servers{clock: enginetest.NewClock(t)}
	var all []*enginetest.Redis
	for i := range n {
		var r *enginetest.Redis
		if i == n-1 {
			r = enginetest.StartRedisBy(t, s.clock, settings...)
		} else {
			r = enginetest.StartRedis(t, settings...)
		}
		all = append(all, r)
		s.addrs = append(s.addrs, r.Addr())
	}
	s.pause = func(i int) { all[i].Freeze(t) }
	s.resume = func(i int) { all[i].Thaw(t) }
	s.crash = func(i int) {
		all[i].Kill(t)
		all[i].Restart(t)
	}
	s.cut = func(i int, r *rand.Rand) {
		list, err := all[i].TryDo("CLIENT", "LIST")
		if err != nil {
			return // it is busy loading its data
		}
		for line := range strings.Lines(list) {
			if id, ok := strings.CutPrefix(strings.Fields(line)[0], "id="); ok && r.IntN(2) == 0 {
				_, _ = all[i].TryDo("CLIENT", "KILL", "ID", id) // it may have gone
			}
		}
	}
	return s
}

func dial(addr string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true,
		ConnWriteTimeout: ttl, Dialer: net.Dialer{Timeout: ttl},
	})
}

func openRedis(addrs []string, quarantine bool) (driver.Engine, error) {
	client, err := dial(addrs[0])
	if err != nil {
		return nil, err
	}
	return redislock.New(client, &redislock.Config{Quarantine: quarantine, MaxTTL: ttl, GiveUp: ttl}), nil
}

func openRedlock(addrs []string) (driver.Engine, error) {
	var nodes []redislock.Conn
	for _, addr := range addrs {
		nodes = append(nodes, redlock.NewLazy(func() (rueidis.Client, error) { return dial(addr) }))
	}
	return redlock.New(nodes, &redlock.Config{MaxTTL: ttl, GiveUp: ttl}), nil
}

func startPostgres(t testing.TB) servers {
	t.Helper()
	s := servers{clock: enginetest.NewClock(t)}
	pg := enginetest.StartPostgresBy(t, s.clock, "max_connections=400")
	s.addrs = []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(pg.Port()))}
	s.pause = func(int) { pg.Freeze(t) }
	s.resume = func(int) { pg.Thaw(t) }
	s.crash = func(int) {
		pg.Kill(t)
		pg.Restart(t)
	}
	s.cut = func(int, *rand.Rand) {
		pg.Query(t, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND random() < 0.5`)
	}
	s.still = func(int, *rand.Rand) (thaw func()) {
		pid, err := strconv.ParseUint(pg.Query(t, `SELECT pid FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY random()`), 10, 32)
		if err != nil {
			return func() {} // nobody is connected
		}
		pg.FreezeBackend(t, uint32(pid))
		return func() { pg.ThawBackend(t, uint32(pid)) }
	}
	return s
}

func openPostgres(addrs []string) (driver.Engine, error) {
	dsn := fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable&connect_timeout=1", addrs[0])
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		return nil, err
	}
	return pglock.New(pool, &pglock.Config{MaxTTL: ttl}), nil
}
