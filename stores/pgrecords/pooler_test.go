//go:build unix

package pgrecords_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/retry"
	"github.com/fencelock/fencelock/internal/testkit/examtest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/pgrecords"
)

// patience bounds what must happen, however slow the machine is.
const patience = time.Minute

// leftovers counts what a client could leave on a server connection that others use after it.
const leftovers = `SELECT (SELECT count(*) FROM pg_settings WHERE source = 'session' AND name NOT IN ('client_encoding', 'DateStyle', 'TimeZone',
		'IntervalStyle', 'standard_conforming_strings', 'application_name', 'extra_float_digits')) || ' settings, ' ||
	(SELECT count(*) FROM pg_prepared_statements) || ' prepared statements, ' || (SELECT count(*) FROM pg_listening_channels()) || ' channels, ' ||
	(SELECT count(*) FROM pg_cursors) || ' cursors, ' || (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory') || ' locks'`

// TestPooler: 64 waiters on 8 names are granted one after the other, behind pools of several sizes that an
// application uses, too. They leave nothing on its connections.
func TestPooler(t *testing.T) {
	t.Parallel()
	for _, pool := range []int{1, 2, 20} {
		for what, listens := range map[string]bool{"polling": false, "listening": true} {
			t.Run(fmt.Sprintf("pool of %d, %s", pool, what), func(t *testing.T) {
				p := start(t, pool)
				crowd(t, p.table(t, listens))
				var app []*pgx.Conn
				for range pool {
					conn, err := pgx.Connect(t.Context(), strings.Replace(p.pooled, "pool_max_conns=24", "default_query_exec_mode=simple_protocol", 1))
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close(context.WithoutCancel(t.Context()))
					if _, err := conn.Exec(t.Context(), "BEGIN"); err != nil { // keeps its server connection
						t.Fatal(err)
					}
					app = append(app, conn)
				}
				for _, conn := range app {
					var left string
					err := conn.QueryRow(t.Context(), leftovers).Scan(&left)
					if want := "0 settings, 0 prepared statements, 0 channels, 0 cursors, 0 locks"; err != nil || left != want {
						t.Errorf("left on a connection: %s, %v", left, err)
					}
				}
			})
		}
	}
}

// crowd lets 64 waiters in 4 processes use 8 names, and logs how long hand-overs take.
func crowd(t *testing.T, where string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var lockers []*fencelock.Locker
	for range 4 {
		e, err := open(where)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.(process).Close() }()
		lockers = append(lockers, fencelock.New(e, nil))
	}
	var mu sync.Mutex // guards the three below
	inside, tokens := map[string]int{}, map[string]int64{}
	released := map[string]time.Time{}
	var took []time.Duration
	var all sync.WaitGroup
	for i := range 64 {
		name := fmt.Sprint("name ", i%8)
		all.Go(func() { // ends with its lock
			l, err := lockers[i%4].Acquire(ctx, name)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			mu.Lock()
			if at := released[name]; !at.IsZero() {
				took = append(took, time.Since(at))
			}
			if inside[name]++; inside[name] > 1 || l.Token() <= tokens[name] {
				t.Errorf("%s: %d holders, token %d after %d", name, inside[name], l.Token(), tokens[name])
			}
			tokens[name] = l.Token()
			mu.Unlock()
			time.Sleep(20 * time.Millisecond) // a hold
			mu.Lock()
			inside[name]--
			released[name] = time.Now()
			mu.Unlock()
			if err := l.Release(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	if len(took) > 0 {
		t.Logf("%s: hand-over p50 %v, p90 %v, of %d", t.Name(), took[len(took)/2], took[len(took)*9/10], len(took))
	}
}

// TestOutageCostsOneLimit: the server does not answer. A hundred concurrent calls of locks and records end
// within their limits of their own start.
func TestOutageCostsOneLimit(t *testing.T) {
	t.Parallel()
	p := start(t, 6)
	r := p.records(t, p.table(t, false))
	e := recordlock.New(r, nil)
	defer func() { _ = e.Close() }()
	held := examtest.Held(t, e)
	p.Freeze(t)
	defer p.Thaw(t)
	const limit = 10 * time.Second // the default of Config.Timeout
	examtest.Outage(t, slices.Concat(examtest.Calls(e, held, 6*time.Second), examtest.Lists(e, limit), examtest.RecordCalls(r, limit)))
}

// TestNoCancel: a connection that is silent is replaced, and nothing asks the server to cancel.
func TestNoCancel(t *testing.T) {
	t.Parallel()
	p := start(t, 2)
	table := strings.Fields(p.table(t, false))[2]
	for _, without := range []bool{false, true} {
		cfg, err := pgxpool.ParseConfig(p.DSN())
		if err != nil {
			t.Fatal(err)
		}
		var dials atomic.Int64
		dial := cfg.ConnConfig.DialFunc
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			return dial(ctx, network, addr)
		}
		cfg.MaxConns = 1
		if without {
			pgrecords.NoCancel(cfg)
		}
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		r := pgrecords.New(pool, &pgrecords.Config{Table: table, Timeout: time.Second})
		if _, err := r.Get(t.Context(), "key"); err != nil {
			t.Fatal(err)
		}
		p.Freeze(t)
		if _, err := r.Get(t.Context(), "key"); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("a frozen server: %v", err)
		}
		p.Thaw(t)
		for begun := time.Now(); ; {
			if _, err = r.Get(t.Context(), "key"); err == nil || time.Since(begun) > patience {
				break
			}
		}
		if n := dials.Load(); err != nil || without != (n == 2) {
			t.Errorf("%d connections, NoCancel: %v; %v", n, without, err)
		}
	}
}

// notified reports how long a change takes to reach a call of Await.
func notified(t *testing.T, l *pgrecords.Listener, r driver.Records, key string) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	now, err := r.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	arrived := make(chan time.Time, 1)
	go func() { // ends with the change, or its context
		_, err := l.Await(ctx, key, now.Version)
		for errors.Is(err, driver.ErrUnavailable) && retry.Sleep(ctx, 10*time.Millisecond) { // the connection was lost
			_, err = l.Await(ctx, key, now.Version)
		}
		if err != nil {
			t.Error(err)
		}
		arrived <- time.Now()
	}()
	time.Sleep(500 * time.Millisecond) // it waits, and polling would be slow by now
	begun := time.Now()
	if _, err := r.Swap(ctx, key, []byte("changed"), now.Version, 0); err != nil {
		t.Fatal(err)
	}
	return (<-arrived).Sub(begun)
}

func listener(t testing.TB, p *place, where, direct string) *pgrecords.Listener {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), p.pooled)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	cfg, err := pgconn.ParseConfig(direct)
	if err != nil {
		t.Fatal(err)
	}
	l := pgrecords.New(pool, &pgrecords.Config{Table: strings.Fields(where)[2]}).Listen(cfg)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func ready(t testing.TB, l *pgrecords.Listener, d time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return l.Ready(ctx)
}

// TestListen: changes of any writer are reported, also after the connection was cut and the table was
// made again, and waiters poll while it is lost.
func TestListen(t *testing.T) {
	t.Parallel()
	p := start(t, 2)
	where := p.table(t, true)
	l := listener(t, p, where, p.DSN())
	other := p.records(t, strings.Replace(where, " "+p.DSN()+" ", " - ", 1))
	for range 3 {
		if err := ready(t, l, patience); err != nil {
			t.Fatal(err)
		}
		if took := notified(t, l, other, "key"); took > 4*time.Second { // it reads after five anyway
			t.Errorf("a change was reported after %v", took)
		}
		p.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN %' AND pid <> pg_backend_pid()")
	}
	// The key may be longer than a payload may be, and have any letters.
	if err := ready(t, l, patience); err != nil {
		t.Fatal(err)
	}
	if took := notified(t, l, other, strings.Repeat("ä", 120)+"'"); took > 4*time.Second {
		t.Errorf("a change was reported after %v", took)
	}
}

// TestListenRefuses: a connection that gets no notifications is found, and says why. Waiters poll then.
func TestListenRefuses(t *testing.T) {
	t.Parallel()
	p := start(t, 2)
	where := p.table(t, true)
	bare := p.table(t, false)
	for name, c := range map[string]struct{ where, direct, want string }{
		"through the pooler": {where, strings.Replace(p.pooled, "&pool_max_conns=24", "", 1), ""},
		"another schema":     {where, p.DSN() + "&options=-csearch_path%3Dother", "has no trigger"},
		"no trigger":         {bare, p.DSN(), "has no trigger (Init of the Listener creates it)"},
		"no server":          {where, "postgres://127.0.0.1:1/postgres?connect_timeout=1", "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := listener(t, p, c.where, c.direct)
			if err := ready(t, l, 7*time.Second); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if rec, err := l.Await(t.Context(), name, ""); !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("Await returned %q, %v", rec.Version, err)
			}
			e := recordlock.New(l, nil)
			defer func() { _ = e.Close() }()
			locks := fencelock.New(e, nil)
			lock, err := locks.TryAcquire(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			granted := make(chan error, 1)
			go func() { // ends when it is granted
				granted <- locks.Do(t.Context(), name, func(context.Context) error { return nil })
			}()
			time.Sleep(500 * time.Millisecond) // it waits
			begun := time.Now()
			if err := errors.Join(lock.Release(), <-granted); err != nil || time.Since(begun) > 4*time.Second {
				t.Errorf("the waiter was granted after %v, %v", time.Since(begun), err)
			}
		})
	}
	// The same table elsewhere is not enough.
	o := pgtest.StartPostgres(t)
	there := &place{Postgres: o, pooled: o.DSN()}
	r := listener(t, there, where, o.DSN())
	if err := r.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := ready(t, listener(t, p, where, o.DSN()), 7*time.Second); !errors.Is(err, driver.ErrConfig) && !strings.Contains(fmt.Sprint(err), "did not arrive") {
		t.Errorf("a connection to another server: %v", err)
	}
}

// TestSchema: the names of tables may be qualified and long.
func TestSchema(t *testing.T) {
	t.Parallel()
	p := start(t, 2)
	p.Exec(t, "CREATE SCHEMA "+strings.Repeat("s", 63))
	for _, table := range []string{strings.Repeat("s", 63) + "." + strings.Repeat("T", 55), "Mixed"} {
		where := "- - " + table
		l := listener(t, p, where, p.DSN())
		for range 2 {
			if err := l.Init(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, statement := range l.Schema() { // an administrator may run them again
			p.Exec(t, statement)
		}
		if err := ready(t, l, patience); err != nil {
			t.Errorf("%s: %v", table, err)
		}
	}
	if _, err := listener(t, p, "- - no;table", p.DSN()).Get(t.Context(), "key"); !errors.Is(err, driver.ErrConfig) {
		t.Errorf("a wrong name: %v", err)
	}
	bad := listener(t, p, "- - nowhere", p.DSN())
	if _, err := bad.Get(t.Context(), "key"); !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "Init creates it") {
		t.Errorf("no table: %v", err)
	}
}

// TestMutants: the rules of records fail if a statement has lost a condition.
func TestMutants(t *testing.T) {
	t.Parallel()
	p := start(t, 2)
	for name, m := range map[string]struct{ statement, pattern, instead string }{
		"reads what has expired":        {"get", `expires > .* LIMIT`, "TRUE LIMIT"},
		"replaces another version":      {"update", `version = \$5`, "length($$5::bytea) >= 0"},
		"replaces what has expired":     {"update", `AND expires > .*`, ""},
		"replaces a record as expired":  {"revive", `AND expires <= .*`, ""},
		"leaves what has expired there": {"revive", `expires <= .*`, "FALSE"},
		"replaces a record as absent":   {"insert", `ON CONFLICT DO NOTHING`, "ON CONFLICT (record_key) DO UPDATE SET version = excluded.version"},
		"lists what has expired":        {"list", `AND expires > .* ORDER`, "ORDER"},
		"lists what comes before":       {"list", `record_key >= \$1`, "(record_key >= $$1 OR TRUE)"},
	} {
		r := p.records(t, p.table(t, false)).(*pgrecords.Records)
		if err := rules(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		r = p.records(t, p.table(t, false)).(*pgrecords.Records)
		if !r.Break(m.statement, m.pattern, m.instead) {
			t.Errorf("%s: changes nothing", name)
		}
		if err := rules(t.Context(), r); err == nil || errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConfig) {
			t.Errorf("%s: %v, want it to be found", name, err)
		}
	}
}

// rules uses records and returns an error if they break a rule of driver.Records.
func rules(ctx context.Context, r driver.Records) error {
	const brief = 50 * time.Millisecond
	gone := func(key string) (version string, err error) {
		version, err = r.Swap(ctx, key, []byte("brief"), "", brief)
		time.Sleep(2 * brief)
		return version, err
	}
	first, err := r.Swap(ctx, "b", []byte("one"), "", 0)
	if err != nil {
		return err
	}
	if _, err := r.Swap(ctx, "b", []byte("two"), "", 0); !errors.Is(err, driver.ErrConflict) {
		return fmt.Errorf("an absent record that is there: %w", cmpErr(err))
	}
	if _, err := r.Swap(ctx, "b", []byte("two"), "other", 0); !errors.Is(err, driver.ErrConflict) {
		return fmt.Errorf("another version: %w", cmpErr(err))
	}
	if rec, err := r.Get(ctx, "b"); err != nil || rec.Version != first || string(rec.Value) != "one" {
		return fmt.Errorf("got %q %w", rec.Value, cmpErr(err))
	}
	version, err := gone("c")
	if err != nil {
		return err
	}
	if rec, err := r.Get(ctx, "c"); err != nil || rec.Version != "" {
		return fmt.Errorf("got what has expired, %w", cmpErr(err))
	}
	if _, err := r.Swap(ctx, "c", nil, version, 0); !errors.Is(err, driver.ErrConflict) {
		return fmt.Errorf("what has expired was replaced: %w", cmpErr(err))
	}
	list, err := r.List(ctx, "b")
	if err != nil || len(list) != 1 || list[0].Key != "b" {
		return fmt.Errorf("listed %v, %w", list, cmpErr(err))
	}
	if list, err = r.List(ctx, ""); err != nil || len(list) != 1 {
		return fmt.Errorf("listed %v, %w", list, cmpErr(err))
	}
	if list, err = r.List(ctx, "c"); err != nil || len(list) != 0 {
		return fmt.Errorf("listed %v, %w", list, cmpErr(err))
	}
	if _, err := r.Swap(ctx, "c", nil, "", 0); err != nil {
		return fmt.Errorf("a record after one that has expired: %w", wrong(err))
	}
	return nil
}

// errWrong is a result that is no error of the server.
var errWrong = errors.New("wrong")

func cmpErr(err error) error {
	if err == nil {
		return errWrong
	}
	return err
}

// wrong hides that an error is one of the records.
func wrong(err error) error {
	if errors.Is(err, driver.ErrConflict) {
		return errWrong
	}
	return err
}

// TestLockedTable: another program locks the table. A role with a lock_timeout leaves no statement in the
// server, and requests fail at their own limits.
func TestLockedTable(t *testing.T) {
	t.Parallel()
	p := start(t, 2)
	table := strings.Fields(p.table(t, false))[2]
	p.Exec(t, "CREATE ROLE app LOGIN")
	p.Exec(t, "GRANT ALL ON "+table+" TO app")
	p.Exec(t, "ALTER ROLE app SET lock_timeout = '200ms'")
	cfg, err := pgxpool.ParseConfig(p.DSN())
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.User = "app"
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	r := pgrecords.New(pool, &pgrecords.Config{Table: table, Timeout: time.Second})
	version, err := r.Swap(t.Context(), "key", []byte("one"), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), p.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE "+table); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Swap(t.Context(), "key", []byte("two"), version, 0); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "lock timeout") {
		t.Errorf("a locked table: %v", err)
	}
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		var waiting int
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app' AND wait_event_type = 'Lock'").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		if waiting == 0 {
			break
		}
		if time.Since(begun) > patience {
			t.Fatalf("%d statements wait in the server", waiting)
		}
	}
	if _, err := conn.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Swap(t.Context(), "key", []byte("two"), version, 0); err != nil {
		t.Errorf("after that: %v", err)
	}
}
