//go:build unix

package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencelock/fencelock/internal/retry"
	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/mariadbtest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/internal/testkit/redistest"
)

// servers are those of one engine.
type servers struct {
	addrs  []string // where they listen
	known  []string // by which clients know them, in the same order; nil means addrs
	hosts  []string // in the URL; nil means addrs
	pause  func(i int)
	resume func(i int)
	crash  func(i int, r *rand.Rand)                   // and starts it again
	cut    func(i int, r *rand.Rand)                   // ends about half of the connections
	busy   func(i int, d time.Duration) (await func()) // Redis: runs a script for that long
	flush  func(i int)                                 // Redis: deletes all data
	clock  *hosttest.Clock                             // of the last server; nil if it cannot be set

	still func() (thaw func())  // PostgreSQL: stops what serves one of the connections
	fill  func() (empty func()) // PostgreSQL: fills the lock table

	master  func() int                                   // Sentinel: which server all agree on, or -1
	promote func()                                       // Sentinel: asks for another master
	isolate func(i int) (heal func())                    // Sentinel: cuts a server off from all the others
	move    func(name string, r *rand.Rand) (end func()) // Cluster: begins to move a name's slot
	tend    func()                                       // what an operator does, now and then
	settle  func()                                       // waits until all servers serve
}

func startRedis(t hosttest.TB, n int, settings ...string) servers {
	var all []*redistest.Redis
	for range n - 1 {
		all = append(all, redistest.StartRedis(t, settings...))
	}
	clock := hosttest.ClockIfPossible(t)
	s := redisServers(t, append(all, redistest.StartRedisBy(t, clock, settings...)))
	s.clock = clock
	return s
}

// redisServers are what can happen to each of them.
func redisServers(t hosttest.TB, all []*redistest.Redis) (s servers) {
	for _, r := range all {
		s.addrs = append(s.addrs, r.Addr())
	}
	s.pause = func(i int) { all[i].Freeze(t) }
	s.resume = func(i int) { all[i].Thaw(t) }
	s.crash = func(i int, _ *rand.Rand) {
		all[i].Kill(t)
		all[i].Restart(t)
	}
	s.flush = func(i int) { _, _ = all[i].TryDo("FLUSHALL") } // a busy one refuses
	s.busy = func(i int, d time.Duration) (await func()) {
		_, _ = all[i].TryDo("CONFIG", "SET", "busy-reply-threshold", "20") // again after each crash
		done := make(chan struct{})
		go func() { // ends after d, or with the server
			defer close(done)
			_, _ = all[i].TryDo("EVAL", busyScript, "0", strconv.FormatInt(d.Microseconds(), 10))
		}()
		return func() { <-done }
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

// busyScript runs for ARGV[1] microseconds. It writes nothing, so the server could kill it.
const busyScript = `
local function now() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end
local stop = now() + ARGV[1]
while now() < stop do end`

func startMariaDB(t hosttest.TB) servers {
	s := servers{clock: hosttest.ClockIfPossible(t)}
	m := mariadbtest.StartBy(t, s.clock)
	s.addrs = []string{m.Addr()}
	var mu sync.Mutex // guards m
	with := func(f func(hosttest.TB)) {
		mu.Lock()
		defer mu.Unlock()
		if m.Ended() {
			m.Restart(t)
		}
		f(t)
	}
	s.pause = func(int) { with(m.Freeze) }
	s.resume = func(int) { with(m.Thaw) }
	s.crash = func(int, *rand.Rand) { with(m.Restart) }
	ctx, stop := context.WithCancel(t.Context())
	var operator sync.WaitGroup
	operator.Go(func() { // starts a server again that has ended by itself; ends with t
		for retry.Sleep(ctx, 100*time.Millisecond) {
			with(func(hosttest.TB) {})
		}
	})
	t.Cleanup(func() {
		stop()
		operator.Wait()
	})
	cfg, err := mysql.ParseDSN(m.DSN("test"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Logger = &mysql.NopLogger{} // errors are returned as well
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	s.cut = func(int, *rand.Rand) { // a server in trouble cuts nothing
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		rows, err := db.QueryContext(ctx, "SELECT id FROM information_schema.processlist WHERE user = 'root' AND id <> connection_id() AND rand() < 0.5")
		if err != nil {
			return
		}
		var ids []int64
		for id := int64(0); rows.Next(); {
			if rows.Scan(&id) == nil {
				ids = append(ids, id)
			}
		}
		_ = rows.Close()
		for _, id := range ids {
			_, _ = db.ExecContext(ctx, fmt.Sprintf("KILL CONNECTION %d", id)) // it may have gone
		}
	}
	return s
}

func startPostgres(t hosttest.TB) servers {
	s := servers{clock: hosttest.ClockIfPossible(t)}
	pg := pgtest.StartPostgresBy(t, s.clock, "max_connections=400", "max_locks_per_transaction=10")
	s.addrs = []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(pg.Port()))}
	s.pause = func(int) { pg.Freeze(t) }
	s.resume = func(int) { pg.Thaw(t) }
	s.crash = func(_ int, r *rand.Rand) {
		if r.IntN(2) == 0 {
			pg.Thaw(t) // or it would not receive it
			pg.Crash(t)
			return
		}
		pg.Kill(t)
		pg.Restart(t)
	}
	var admin *pgconn.PgConn                 // kept: in a storm a new connection takes too long
	ask := func(sql string) *pgconn.Result { // its rows are empty if the server is in any trouble
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if admin == nil || admin.IsClosed() {
			admin, _ = pgconn.Connect(ctx, pg.DSN())
		}
		if admin == nil {
			return &pgconn.Result{}
		}
		return admin.ExecParams(ctx, sql, nil, nil, nil, nil).Read()
	}
	const clients = " FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() "
	s.cut = func(int, *rand.Rand) { ask("SELECT pg_terminate_backend(pid)" + clients + "AND random() < 0.5") }
	s.still = func() (thaw func()) {
		found := ask("SELECT pid" + clients + "ORDER BY random() LIMIT 1").Rows
		if len(found) == 0 {
			return nil
		}
		pid, _ := strconv.ParseUint(string(found[0][0]), 10, 32)
		pg.FreezeBackend(t, uint32(pid))
		return func() { pg.ThawBackend(t, uint32(pid)) }
	}
	s.fill = func() (empty func()) {
		conn, err := pgconn.Connect(t.Context(), pg.DSN())
		if err != nil {
			return nil
		}
		// It fails when the table is full, and keeps what it has got.
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_ = conn.Exec(ctx, "SELECT pg_advisory_lock_shared(4711, i) FROM generate_series(1, 1000000) i").Close()
		return func() { _ = conn.Close(t.Context()) }
	}
	return s
}
