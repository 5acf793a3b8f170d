//go:build unix

package sqlrecords_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/stores/sqlrecords"
)

// execModes are the ways in which pgx sends statements. The others prepare a statement in one round
// trip and execute it in the next.
var execModes = map[string]struct{ whole bool }{
	"cache_statement": {false}, "describe_exec": {false},
	"cache_describe": {true}, "exec": {true}, "simple_protocol": {true},
}

// behind returns a server that is reached by a pooler. Its own pool db connects directly.
func behind(t testing.TB, s *server, p *pgtest.Postgres, mode string, with ...string) *server {
	t.Helper()
	u, err := url.Parse(pgtest.StartPgBouncer(t, p, mode, with...).DSN())
	if err != nil {
		t.Fatal(err)
	}
	return &server{dialect: s.dialect, driver: s.driver, addr: u.Host, database: s.database, db: s.db}
}

// TestPooler: behind a pooler that lends a server connection for a transaction, a driver that
// prepares statements can execute another client's statement, in the wrong table. It is refused.
// Everything else works.
func TestPooler(t *testing.T) {
	t.Parallel()
	s, p := postgresServer(t)
	tables := []string{s.table(t), s.table(t)}
	shared := behind(t, s, p, "transaction", "default_pool_size = 6")
	alternating := behind(t, s, p, "transaction", "min_pool_size = 4", "server_round_robin = 1")
	session := behind(t, s, p, "session")
	for mode, m := range execModes {
		with := settings{"default_query_exec_mode": mode}
		t.Run(mode, func(t *testing.T) {
			swap(t, s.records(t, tables[0], with), "direct "+mode, "", "", 0)
			swap(t, session.records(t, tables[0], with), "session "+mode, "", "", 0)
			for name, pooled := range map[string]*server{"transaction": shared, "round robin": alternating} {
				for range 10 {
					_, err := pooled.records(t, tables[0], with).Get(t.Context(), "a")
					if m.whole && err != nil || !m.whole && !wrongMode(err) {
						t.Errorf("%s: got %v", name, err)
					}
				}
			}
			crossed(t, shared, tables, with, m.whole)
		})
	}
}

// wrongMode reports whether an error is ErrConfig and names the settings of drivers.
func wrongMode(err error) bool {
	return errors.Is(err, driver.ErrConfig) && !errors.Is(err, driver.ErrUnavailable) &&
		strings.Contains(err.Error(), "default_query_exec_mode=exec") && strings.Contains(err.Error(), "binary_parameters=yes")
}

// crossed writes to two tables by 24 clients at once. What is reported as written must be in its table.
func crossed(t *testing.T, s *server, tables []string, with settings, works bool) {
	var all sync.WaitGroup
	for i := range 24 {
		table := tables[i%2]
		r := s.records(t, table, with)
		all.Go(func() { // ends with its swaps
			for n := range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				key := fmt.Sprint(t.Name(), i, " ", n)
				_, err := r.Swap(ctx, key, []byte(table), "", 0)
				rows := 0
				if err := s.db.QueryRowContext(ctx, "SELECT count(*) FROM "+table+" WHERE record_key = $1", []byte(key)).Scan(&rows); err != nil {
					t.Error(err)
				}
				if (rows == 1) != works || (err == nil) != works || err != nil && !wrongMode(err) {
					t.Errorf("a swap returned %v and has written %d rows", err, rows)
				}
				cancel()
			}
		})
	}
	all.Wait()
	for i, table := range tables {
		if n := s.number(t, "SELECT count(*) FROM "+table+" WHERE value = '"+tables[1-i]+"'"); n > 0 {
			t.Errorf("%d records are in the wrong table", n)
		}
	}
}

// TestPoolerLater: a pooler that is put between a program and its server later is found by the errors
// of the server.
func TestPoolerLater(t *testing.T) {
	t.Parallel()
	s, p := postgresServer(t)
	table := s.table(t)
	foreign := s.table(t)
	s.exec(t, "CREATE FUNCTION foreign_words() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'Bind-Nachricht' USING ERRCODE = '08P01'; END $$",
		"CREATE TRIGGER words BEFORE INSERT ON "+foreign+" FOR EACH ROW EXECUTE FUNCTION foreign_words()")
	pooled := behind(t, s, p, "transaction", "default_pool_size = 1")
	for mode, m := range execModes {
		if m.whole {
			continue
		}
		t.Run(mode, func(t *testing.T) {
			db := pooled.open(t, pooled.dsn(pooled.addr, settings{"default_query_exec_mode": mode}))
			r := sqlrecords.New(db, s.dialect, &sqlrecords.Config{Table: table})
			r.SkipCheck()
			var err error
			for range 100 {
				if err = disturbed(t, db, r); err != nil {
					break
				}
			}
			if !wrongMode(err) {
				t.Errorf("got %v, want ErrConfig", err)
			}
			for range 5 { // each call checks now
				if _, err := r.Get(t.Context(), "a"); !wrongMode(err) {
					t.Errorf("after that: got %v, want ErrConfig", err)
				}
			}

			// A server that speaks another language is not understood, but the next call checks again.
			r = sqlrecords.New(db, s.dialect, &sqlrecords.Config{Table: foreign})
			r.SkipCheck()
			if _, err := r.Swap(t.Context(), "a", nil, "", 0); err == nil {
				t.Error("the trigger has no effect")
			}
			if _, err := r.Get(t.Context(), "a"); !wrongMode(err) {
				t.Errorf("after an error that could be due to a pooler: got %v, want ErrConfig", err)
			}
		})
	}
}

// disturbed reads records by several connections at once.
func disturbed(t *testing.T, db *sql.DB, r *sqlrecords.Records) error {
	errs := make(chan error)
	for i := range 8 {
		go func() { // ends with its reads
			_, err := r.Get(t.Context(), fmt.Sprint(i))
			_, more := r.List(t.Context(), "a")
			errs <- errors.Join(err, more)
		}()
	}
	var all error
	for range 8 {
		if err := <-errs; all == nil {
			all = err
		}
	}
	db.SetMaxIdleConns(8)
	return all
}

// TestPoolerFull: a pooler that gives no connection is unavailable, although its errors have the code of
// a protocol violation.
func TestPoolerFull(t *testing.T) {
	t.Parallel()
	s, p := postgresServer(t)
	table := s.table(t)
	pooled := behind(t, s, p, "transaction", "default_pool_size = 1", "query_wait_timeout = 1")
	with := settings{"default_query_exec_mode": "exec"}
	r := pooled.records(t, table, with)
	get(t, r, "a")
	tx, err := pooled.open(t, pooled.dsn(pooled.addr, with)).Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Get(t.Context(), "a"); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrConfig) {
		t.Errorf("while the pool is in use: got %v, want ErrUnavailable", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	get(t, r, "a")
}

// TestSmallPool: the check needs two connections at once, which a small pool may not have.
func TestSmallPool(t *testing.T) {
	t.Parallel()
	s, _ := postgresServer(t)
	table := s.table(t)
	for size, fits := range map[int]bool{1: false, 2: true, 8: true} {
		db := s.open(t, s.dsn(s.addr, nil))
		db.SetMaxOpenConns(size)
		var all sync.WaitGroup
		for range 4 {
			r := sqlrecords.New(db, s.dialect, &sqlrecords.Config{Table: table})
			for range 8 {
				all.Go(func() { // ends with its call
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					if _, err := r.Get(ctx, "a"); fits && err != nil || !fits && !wrongMode(err) {
						t.Errorf("with %d connections: got %v", size, err)
					}
				})
			}
		}
		all.Wait()
	}
	db := s.open(t, s.dsn(s.addr, settings{"default_query_exec_mode": "exec"}))
	db.SetMaxOpenConns(1)
	get(t, sqlrecords.New(db, s.dialect, &sqlrecords.Config{Table: table}), "a")
}

// TestSmallPgxPool: a pool of pgx below that of database/sql has one connection. The error says what to
// do. With whole statements, one is enough.
func TestSmallPgxPool(t *testing.T) {
	t.Parallel()
	s, _ := postgresServer(t)
	table := s.table(t)
	for mode, m := range execModes {
		cfg, err := pgxpool.ParseConfig(s.dsn(s.addr, settings{"default_query_exec_mode": mode}))
		if err != nil {
			t.Fatal(err)
		}
		cfg.MaxConns = 1
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		db := stdlib.OpenDBFromPool(pool)
		t.Cleanup(func() { _ = db.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err = sqlrecords.New(db, s.dialect, &sqlrecords.Config{Table: table}).Get(ctx, "a")
		cancel()
		if m.whole && err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		if !m.whole && (!errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "default_query_exec_mode=exec")) {
			t.Errorf("%s: got %v, want ErrUnavailable and a remedy", mode, err)
		}
	}
}

// TestBytesInTheOtherForm: bytea_output=escape is refused only if the driver cannot read it.
func TestBytesInTheOtherForm(t *testing.T) {
	t.Parallel()
	s, _ := postgresServer(t)
	table := s.table(t)
	for mode := range execModes {
		r := s.records(t, table, settings{"bytea_output": "escape", "default_query_exec_mode": mode})
		value := string([]byte{0, 255, '\\'})
		_, err := r.Swap(t.Context(), mode, []byte(value), "", 0)
		if err == nil {
			if rec := get(t, r, mode); string(rec.Value) != value {
				t.Errorf("%s: read %q", mode, rec.Value)
			}
		}
		if text := mode == "exec" || mode == "simple_protocol"; text != errors.Is(err, driver.ErrConfig) || !text && err != nil {
			t.Errorf("%s: got %v", mode, err)
		}
	}
}

// TestIdleConnectionEnded: a connection that the server has ended while it was idle makes no call fail.
func TestIdleConnectionEnded(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, s *server) {
		db := s.open(t, s.dsn(s.addr, nil))
		r := sqlrecords.New(db, s.dialect, &sqlrecords.Config{Table: s.table(t)})
		version := ""
		for range 3 {
			version = swap(t, r, "a", "", version, 0)
			s.endIdle(t, db)
			get(t, r, "a")
			s.endIdle(t, db)
			if _, err := r.List(t.Context(), ""); err != nil {
				t.Error(err)
			}
			s.endIdle(t, db)
			if _, _, err := r.Clock(t.Context()); err != nil {
				t.Error(err)
			}
			s.endIdle(t, db)
		}
	})
}

// endIdle has the server end the connections of a pool, since they are idle, and waits until it has.
// The limit is set when a connection is used no more, so that a slow test is not idle.
func (s *server) endIdle(t *testing.T, db *sql.DB) {
	t.Helper()
	var conns []*sql.Conn
	for range db.Stats().Idle {
		within(t, func(ctx context.Context) error {
			conn, err := db.Conn(ctx)
			conns = append(conns, conn)
			return err
		})
	}
	if len(conns) == 0 {
		t.Error("the pool has no idle connection")
	}
	var ids []string
	for _, conn := range conns {
		within(t, func(ctx context.Context) error {
			var id string
			err := conn.QueryRowContext(ctx, s.pick("SELECT connection_id()", "SELECT pg_backend_pid()")).Scan(&id)
			if err == nil {
				_, err = conn.ExecContext(ctx, s.pick("SET SESSION wait_timeout = 1", "SET idle_session_timeout = 1"))
			}
			ids = append(ids, id)
			return errors.Join(err, conn.Close())
		})
	}
	left := s.pick("SELECT count(*) FROM information_schema.processlist WHERE id IN (", "SELECT count(*) FROM pg_stat_activity WHERE pid IN (")
	for end := time.Now().Add(patience); s.number(t, left+strings.Join(ids, ",")+")") > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the server has not ended the connections")
		}
	}
}
