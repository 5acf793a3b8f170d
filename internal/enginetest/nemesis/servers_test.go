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
	"time"

	"github.com/jackc/pgx/v5"
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
	crash  func(i int, r *rand.Rand) // and starts it again
	cut    func(i int, r *rand.Rand) // ends about half of the connections
	clock  *enginetest.Clock         // of the last server

	still func() (thaw func())  // PostgreSQL: stops what serves one of the connections
	fill  func() (empty func()) // PostgreSQL: fills the lock table
}

var kinds map[string]kind

func init() { // the workers' functions refer to it
	postgresSafe := append([]string{storm, pause, crash, clock, still, full}, network...)
	redisSafe := append([]string{storm, pause, crash, back}, network...)
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
			safe:  postgresSafe,
			all:   postgresSafe,
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
	s.crash = func(i int, _ *rand.Rand) {
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
	pg := enginetest.StartPostgresBy(t, s.clock, "max_connections=400", "max_locks_per_transaction=10")
	s.addrs = []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(pg.Port()))}
	s.pause = func(int) { pg.Freeze(t) }
	s.resume = func(int) { pg.Thaw(t) }
	s.crash = func(_ int, r *rand.Rand) {
		if r.IntN(2) == 0 {
			pg.Thaw(t) // or it would not hear of it
			pg.Crash(t)
			return
		}
		pg.Kill(t)
		pg.Restart(t)
	}
	var admin *pgx.Conn // kept: in a storm a new connection takes too long
	s.cut = func(int, *rand.Rand) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if admin == nil || admin.IsClosed() {
			admin, _ = pgx.Connect(ctx, pg.DSN())
		}
		if admin != nil {
			_, _ = admin.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND random() < 0.5`)
		}
	}
	s.still = func() (thaw func()) {
		pid := uint32(0)
		visit(t, pg, func(ctx context.Context, conn *pgx.Conn) {
			_ = conn.QueryRow(ctx, `SELECT pid FROM pg_stat_activity
				WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY random()`).Scan(&pid)
		})
		if pid == 0 {
			return func() {}
		}
		pg.FreezeBackend(t, pid)
		return func() { pg.ThawBackend(t, pid) }
	}
	s.fill = func() (empty func()) {
		conn, err := pgx.Connect(t.Context(), pg.DSN())
		if err != nil {
			return func() {}
		}
		// It fails when the table is full, and keeps what it has got.
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, _ = conn.Exec(ctx, "SELECT pg_advisory_lock_shared(4711, i) FROM generate_series(1, 1000000) i")
		return func() { _ = conn.Close(t.Context()) }
	}
	return s
}

// visit gives do a connection to a server that may be in any trouble: then it
// does nothing.
func visit(t testing.TB, pg *enginetest.Postgres, do func(context.Context, *pgx.Conn)) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, pg.DSN())
	if err != nil {
		return
	}
	do(ctx, conn)
	_ = conn.Close(ctx)
}

func openPostgres(addrs []string) (driver.Engine, error) {
	dsn := fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable&connect_timeout=1", addrs[0])
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		return nil, err
	}
	return pglock.New(pool, &pglock.Config{MaxTTL: ttl}), nil
}
