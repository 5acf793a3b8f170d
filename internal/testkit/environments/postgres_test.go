//go:build unix

package environments_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/faults"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/pglock"
)

// pgSite is how the engine reaches PostgreSQL.
type pgSite struct {
	pg    *pgtest.Postgres
	dsn   string // instead of the server's
	pgcfg pglock.Config
	pgway *faults.Proxy
}

func (s *site) openPostgres() {
	dsn := s.dsn
	if dsn == "" {
		dsn = s.pg.DSN()
	}
	pool, err := pgxpool.New(context.Background(), dsn)
	must(s.T, err)
	e := pglock.New(pool, &s.pgcfg)
	s.Cleanup(func() {
		_ = e.Close()
		pool.Close()
	})
	s.engine = e
}

// database starts a server on which the schema exists, and then runs statements as an administrator.
func database(settings []string, statements ...string) func(*site) {
	return func(s *site) {
		s.pg = pgtest.StartPostgres(s.T, settings...)
		s.initialize()
		if len(statements) > 0 {
			s.pg.Exec(s.T, statements...)
		}
	}
}

// initialize creates the schema, as an administrator does.
func (s *site) initialize() {
	pool, err := pgxpool.New(s.Context(), s.pg.DSN())
	must(s.T, err)
	defer pool.Close()
	e := pglock.New(pool, nil)
	defer func() { _ = e.Close() }()
	must(s.T, e.Init(s.Context()))
}

// role starts a server and connects as a role with settings.
func role(settings ...string) func(*site) {
	return func(s *site) {
		database(nil, "CREATE ROLE app LOGIN")(s)
		for _, set := range settings {
			s.pg.Exec(s.T, "ALTER ROLE app SET "+set)
		}
		s.dsn = s.pg.As("app")
	}
}

// hidden starts a server that hides its timeline by an error, before the schema is created.
func hidden(code string) func(*site) {
	return func(s *site) {
		s.pg = pgtest.StartPostgres(s.T)
		raises := " LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not here' USING ERRCODE = '" + code + "'; END $$"
		s.pg.Exec(s.T, "SET allow_system_table_mods = on",
			"ALTER FUNCTION pg_catalog.pg_current_wal_insert_lsn() RENAME TO was_insert_lsn",
			"ALTER FUNCTION pg_catalog.pg_walfile_name(pg_lsn) RENAME TO was_walfile_name",
			"CREATE FUNCTION pg_catalog.pg_current_wal_insert_lsn() RETURNS pg_lsn"+raises,
			"CREATE FUNCTION pg_catalog.pg_walfile_name(pg_lsn) RETURNS text"+raises)
		s.initialize()
	}
}

// pooled puts PgBouncer before a server.
func pooled(mode string, allow bool, settings ...string) func(*site) {
	return func(s *site) {
		database(nil)(s)
		s.dsn = pgtest.StartPgBouncer(s.T, s.pg, mode, settings...).DSN()
		s.pgcfg.AllowPooler = allow
	}
}

// encoded uses a database in another encoding.
func encoded(encoding string) func(*site) {
	return func(s *site) {
		s.pg = pgtest.StartCluster(s.T)
		s.pg.Exec(s.T, "CREATE DATABASE other TEMPLATE template0 ENCODING '"+encoding+"' LOCALE 'C'")
		s.dsn = strings.Replace(s.pg.DSN(), "/postgres?", "/other?", 1)
	}
}

// crowded uses up all connections of the role, or of the server.
func crowded(s *site) {
	s.pg.Exec(s.T, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'fencelock'")
	for s.pg.Query(s.T, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fencelock'") != "0" {
		time.Sleep(10 * time.Millisecond) // the slots of those that are ending would be free again
	}
	for range 100 {
		conn, err := pgx.Connect(s.Context(), s.pg.As("app"))
		if err != nil {
			return
		}
		s.Cleanup(func() { _ = conn.Close(context.Background()) })
	}
	s.Fatal("there is room for everybody")
}

// through puts a proxy before a server.
func through(s *site) {
	database(nil)(s)
	s.pgway = s.proxy(fmt.Sprintf("127.0.0.1:%d", s.pg.Port()))
	u, err := url.Parse(s.pg.DSN())
	must(s.T, err)
	u.Host = s.pgway.Addr()
	s.dsn = u.String()
}

// slowClient registers a client whose clock stands before the last start of the server, long after it.
func slowClient(s *site) {
	s.pg.Query(s.T, "SELECT fencelock.register(5000, (extract(epoch FROM now() - interval '1 hour') * 1000000)::bigint)")
}

// withoutStandby makes commits wait for a standby that is unreachable.
func withoutStandby(s *site) {
	s.pg.Exec(s.T, "ALTER SYSTEM SET synchronous_standby_names = 'away'", "SELECT pg_reload_conf()")
}

// pgRows are the environments of PostgreSQL.
func pgRows() []row {
	rows := slices.Clone(pgEnvironments)
	for _, set := range []string{"lock_timeout = '50ms'", "statement_timeout = '300ms'", "search_path = ''", "search_path = nowhere", "idle_in_transaction_session_timeout = '300ms'",
		"idle_session_timeout = '300ms'", "default_transaction_isolation = 'serializable'", "default_transaction_deferrable = on", "client_encoding = 'LATIN1'", "bytea_output = 'escape'", "DateStyle = 'SQL, DMY'", "IntervalStyle = 'sql_standard'",
		"TimeZone = 'Asia/Kolkata'", "standard_conforming_strings = off", "extra_float_digits = -15", "row_security = off", "synchronous_commit = off", "enable_indexscan = off", "tcp_user_timeout = 1000"} {
		rows = append(rows, row{name: "role: " + set, start: role(set), act: waiting(time.Second), most: time.Second})
	}
	return rows
}

var pgEnvironments = []row{
	{name: "PostgreSQL", start: database(nil)},
	{name: "PostgreSQL, contended", start: database(nil), act: queue},
	{name: "Aurora: WAL functions answer 55000", start: hidden("55000"), act: queue},
	{name: "WAL functions answer 0A000", start: hidden("0A000"), act: queue},
	{name: "WAL functions answer 42501", start: hidden("42501"), act: queue},
	{name: "the synchronous standby goes down", start: database(nil), fault: withoutStandby, act: queue},
	{name: "the synchronous standby is down at first", start: func(s *site) { database(nil)(s); withoutStandby(s) }, want: driver.ErrUnavailable, words: "standby", most: 2 * pgPatience},
	{name: "role: default_transaction_read_only = on", start: role("default_transaction_read_only = on"), want: driver.ErrConfig, words: "read-only"},
	{name: "PgBouncer, session mode", start: pooled("session", false), want: driver.ErrConfig, words: "pooler"},
	{name: "PgBouncer, transaction mode", start: pooled("transaction", false), want: driver.ErrConfig, words: "pooler"},
	{name: "PgBouncer, statement mode", start: pooled("statement", false), want: driver.ErrConfig, words: "pooler"},
	{name: "PgBouncer, session mode, AllowPooler", start: pooled("session", true), act: queue},
	{name: "PgBouncer, transaction mode, AllowPooler", start: pooled("transaction", true), want: driver.ErrConfig, words: "session pooling"},
	{name: "PgBouncer, transaction, pool of 1, AllowPooler", start: pooled("transaction", true, "default_pool_size=1"), want: driver.ErrConfig, words: "session pooling"},
	{name: "PgBouncer, statement mode, AllowPooler", start: pooled("statement", true), want: driver.ErrConfig, words: "session pooling"},
	{name: "PgBouncer, session, pool of 1, AllowPooler", start: pooled("session", true, "default_pool_size=1"), want: driver.ErrUnavailable, words: "the pooler gives no connection", most: 2 * pgPatience},
	{name: "all connections are in use", start: func(s *site) {
		database([]string{"max_connections=12"}, "CREATE ROLE app LOGIN")(s)
		s.dsn = s.pg.As("app")
	}, fault: crowded, want: driver.ErrUnavailable, words: "remaining connection slots", most: pgPatience},
	{name: "the role's connections are in use", start: func(s *site) { role()(s); s.pg.Exec(s.T, "ALTER ROLE app CONNECTION LIMIT 4") }, fault: crowded, want: driver.ErrUnavailable, words: "too many connections", most: pgPatience},
	{name: "database in SQL_ASCII", start: encoded("SQL_ASCII"), want: driver.ErrConfig, words: "UTF8"},
	{name: "database in LATIN1", start: encoded("LATIN1"), want: driver.ErrConfig, words: "UTF8"},
	{name: "a standby", start: func(s *site) { database(nil)(s); s.pg = s.pg.Standby(s.T) }, want: driver.ErrConfig, words: "standby", most: pgPatience},
	{name: "a role without rights on the schema", start: func(s *site) { role()(s); s.pg.Exec(s.T, "REVOKE ALL ON SCHEMA fencelock FROM PUBLIC") }, want: driver.ErrConfig, words: "permission denied"},
	{name: "no schema, and no right to create it", start: func(s *site) {
		s.pg = pgtest.StartPostgres(s.T)
		s.pg.Exec(s.T, "CREATE ROLE app LOGIN")
		s.dsn = s.pg.As("app")
	}, want: driver.ErrConfig, words: "permission denied"},
	{name: "an unknown role", start: func(s *site) { database(nil)(s); s.dsn = s.pg.As("nobody") }, want: driver.ErrConfig, words: "does not exist"},
	{name: "an unknown database", start: func(s *site) { database(nil)(s); s.dsn = strings.Replace(s.pg.DSN(), "?", "x?", 1) }, want: driver.ErrConfig, words: "does not exist"},
	{name: "server is frozen", start: database(nil), fault: func(s *site) { s.pg.Freeze(s.T); s.Cleanup(func() { s.pg.Thaw(s.T) }) }, want: driver.ErrUnavailable, most: 2 * pgPatience},
	{name: "server is frozen, 100 ms to wait", start: database(nil), fault: func(s *site) { s.pg.Freeze(s.T); s.Cleanup(func() { s.pg.Thaw(s.T) }) }, act: briefly, want: context.DeadlineExceeded},
	{name: "server is down", start: database(nil), fault: func(s *site) { s.pg.Kill(s.T) }, want: driver.ErrUnavailable, most: pgPatience},
	{name: "server was restarted", start: database(nil), fault: func(s *site) { s.pg.Restart(s.T) }, want: driver.ErrUnavailable, words: "restart", most: pgPatience},
	{name: "the network is silent", start: through, fault: func(s *site) { s.pgway.Stall(faults.Both) }, want: driver.ErrUnavailable, most: 2 * pgPatience},
	{name: "a round trip of 300 ms, contended", start: through, fault: func(s *site) { s.pgway.Delay(faults.Both, 150*time.Millisecond) }, act: queue, most: 4 * time.Second},
	{name: "a NAT drops all connections", start: through, fault: func(s *site) { silence(s.pgway) }, most: 2 * pgPatience},
	{name: "a client's clock is an hour behind", start: database(nil), fault: slowClient, act: queue},
	{name: "MaxTTL beyond the server's", start: func(s *site) { database(nil)(s); s.pgcfg.MaxTTL = 2147483648 * time.Millisecond }, want: driver.ErrConfig, words: "MaxTTL"},
}
