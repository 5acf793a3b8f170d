//go:build unix

package sqlrecords_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/fencelock/fencelock/internal/testkit/hosttest"
	"github.com/fencelock/fencelock/internal/testkit/mariadbtest"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/stores/sqlrecords"
)

// patience bounds what must happen, however slow the machine is.
const patience = time.Minute

// A server is one of a dialect, with a table for each that asks.
type server struct {
	dialect  sqlrecords.Dialect
	driver   string
	addr     string
	database string
	db       *sql.DB
	restart  func(hosttest.TB)
	freeze   func(hosttest.TB)
	thaw     func(hosttest.TB)
	count    atomic.Int64 // tables
}

// settings of connections, as a driver calls them.
type settings map[string]string

func startMariaDB(t testing.TB) *server {
	m := mariadbtest.Start(t)
	s := &server{dialect: sqlrecords.MySQL, driver: "mysql", addr: m.Addr(), database: "test", restart: m.Restart, freeze: m.Freeze, thaw: m.Thaw}
	s.db = s.open(t, s.dsn(s.addr, nil))
	s.exec(t, "CREATE DATABASE records") // in the database test everybody has all rights
	s.database = "records"
	s.db = s.open(t, s.dsn(s.addr, nil))
	return s
}

func startPostgres(t testing.TB) *server {
	s, _ := postgresServer(t)
	return s
}

// postgresServer is startPostgres for a test that needs the server itself.
func postgresServer(t testing.TB) (*server, *pgtest.Postgres) {
	p := pgtest.StartPostgres(t)
	addr := net.JoinHostPort("127.0.0.1", fmt.Sprint(p.Port()))
	s := &server{dialect: sqlrecords.PostgreSQL, driver: "pgx", addr: addr, database: "postgres", restart: p.Crash, freeze: p.Freeze, thaw: p.Thaw}
	s.db = s.open(t, s.dsn(s.addr, nil))
	return s, p
}

// dsn returns a data source name for an address of the server.
func (s *server) dsn(addr string, with settings) string {
	query := url.Values{}
	for name, value := range with {
		query.Set(name, value)
	}
	if s.dialect == sqlrecords.MySQL {
		return mariadbtest.DSN(addr, s.database) + "?" + query.Encode()
	}
	query.Set("sslmode", "disable")
	return fmt.Sprintf("postgres://postgres@%s/%s?%s", addr, s.database, strings.ReplaceAll(query.Encode(), "+", "%20"))
}

// open opens a pool, which is closed with the test.
func (s *server) open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(s.driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// table makes a table of records, and returns its name.
func (s *server) table(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("records%d", s.count.Add(1))
	within(t, s.records(t, name, nil).Init)
	return name
}

// records are those of a table, over connections of their own with some settings.
func (s *server) records(t testing.TB, table string, with settings) *sqlrecords.Records {
	t.Helper()
	return sqlrecords.New(s.open(t, s.dsn(s.addr, with)), s.dialect, &sqlrecords.Config{Table: table})
}

// exec runs statements.
func (s *server) exec(t testing.TB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		within(t, func(ctx context.Context) error {
			if _, err := s.db.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
			return nil
		})
	}
}

// number returns the answer to a query for one number.
func (s *server) number(t testing.TB, query string) (n int) {
	t.Helper()
	within(t, func(ctx context.Context) error { return s.db.QueryRowContext(ctx, query).Scan(&n) })
	return n
}

// within makes a call that should succeed in time.
func within(t testing.TB, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := call(ctx); err != nil {
		t.Fatal(err)
	}
}

// forEach runs a test on a server of each dialect.
func forEach(t *testing.T, test func(t *testing.T, s *server)) {
	for name, start := range map[string]func(testing.TB) *server{"mariadb": startMariaDB, "postgres": startPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t))
		})
	}
}

// pick returns what is meant for the dialect of a server.
func (s *server) pick(mysql, postgres string) string {
	if s.dialect == sqlrecords.MySQL {
		return mysql
	}
	return postgres
}
