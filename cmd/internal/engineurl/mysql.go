//go:build unix

package engineurl

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/sqlrecords"
)

// mysqlParameters are the parameters of URLs of MariaDB and MySQL.
var mysqlParameters = []string{"table", "tls", "timeout"}

// mysqlConnections is the maximum number of connections of a process, and how many of them are kept
// while they are idle.
const mysqlConnections, mysqlIdle = 24, 8

// MySQL is a parsed URL of MariaDB or MySQL.
type MySQL struct {
	Client *mysql.Config
	Table  string
	scheme string
	limit  time.Duration // of the first connection
	secrets
}

// Open connects once, creates the table if there is none, and returns the engine.
func (t *MySQL) Open(ctx context.Context, _ *slog.Logger) (driver.Engine, func() error, error) {
	db, err := t.DB()
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(mysqlConnections)
	db.SetMaxIdleConns(mysqlIdle)
	records := sqlrecords.New(db, sqlrecords.MySQL, &sqlrecords.Config{Table: t.Table})
	engine := recordlock.New(records, &recordlock.Config{Name: t.scheme})
	end := func() error { return closeBoth(engine.Close, func() { _ = db.Close() }) }
	missing := func(err error) bool {
		server, ok := errors.AsType[*mysql.MySQLError](err)
		return ok && server.Number == NoSuchTable
	}
	if err := firstRequest(ctx, t.limit, records, missing, func(err error) error { return explain(err, t.secrets, "", tableRights) }); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return engine, end, nil
}

// DB returns the database. It does not connect.
func (t *MySQL) DB() (*sql.DB, error) {
	connector, err := mysql.NewConnector(t.Client)
	if err != nil {
		return nil, errors.New(t.Hide(err.Error()))
	}
	return sql.OpenDB(connector), nil
}

// parseMySQL parses a URL. It does not connect.
func parseMySQL(u *url.URL) (*MySQL, error) {
	database := strings.TrimPrefix(u.Path, "/")
	if u.Opaque != "" || u.Fragment != "" || u.Hostname() == "" || database == "" || strings.Contains(u.Host, ",") {
		return nil, errors.New("the URL needs a host and a database")
	}
	q, err := parseKnown(u, mysqlParameters...)
	if err != nil {
		return nil, err
	}
	t := &MySQL{Client: mysql.NewConfig(), Table: cmp.Or(q.Get("table"), recordsTable), scheme: u.Scheme, limit: cmp.Or(q.duration("timeout", 100*time.Millisecond, "4s"), 4*time.Second)}
	t.Client.User = u.User.Username()
	t.Client.Passwd, _ = u.User.Password()
	t.Client.Net, t.Client.Addr, t.Client.DBName = "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "3306")), database
	t.Client.Timeout = t.limit
	t.Client.Logger = &mysql.NopLogger{} // errors are returned as well
	switch q.Get("tls") {
	case "":
	case "on":
		t.Client.TLSConfig = "true"
	case "skip-verify":
		t.Client.TLSConfig = "skip-verify"
	default:
		q.fail("tls", "write on, or skip-verify")
	}
	t.keep(t.Client.Passwd)
	return t, q.err
}

// tableRights is the hint for a server that refuses a user of a table.
const tableRights = "check the user, the password and the database in FENCELOCK_URL; the user needs SELECT, INSERT, UPDATE and DELETE on the table, and CREATE if there is none"

// NoSuchTable is the number of the error for a table that does not exist.
const NoSuchTable = 1146
