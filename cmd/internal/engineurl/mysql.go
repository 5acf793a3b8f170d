//go:build unix

package engineurl

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
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

// mysqlTarget is a parsed URL of MariaDB or MySQL.
type mysqlTarget struct {
	client *mysql.Config
	table  string
	limit  time.Duration // of the first connection
	secrets
}

// openMySQL connects once, creates the table if there is none, and returns the engine of the URL.
func openMySQL(ctx context.Context, u *url.URL, o options) (driver.Engine, func() error, error) {
	target, err := parseMySQL(u)
	if err != nil {
		return nil, nil, err
	}
	if o.dial != nil {
		target.client.DialFunc = func(ctx context.Context, _, addr string) (net.Conn, error) { return o.dial(ctx, addr) }
	}
	connector, err := mysql.NewConnector(target.client)
	if err != nil {
		return nil, nil, errors.New(target.hide(err.Error()))
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(mysqlConnections)
	db.SetMaxIdleConns(mysqlIdle)
	records := sqlrecords.New(db, sqlrecords.MySQL, &sqlrecords.Config{Table: target.table})
	engine := recordlock.New(records, &recordlock.Config{Name: u.Scheme})
	end := func() error { return closeBoth(engine.Close, func() { _ = db.Close() }) }
	if err := target.prepare(ctx, records); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return engine, end, nil
}

// parseMySQL parses a URL. It does not connect.
func parseMySQL(u *url.URL) (*mysqlTarget, error) {
	database := strings.TrimPrefix(u.Path, "/")
	if u.Opaque != "" || u.Fragment != "" || u.Hostname() == "" || database == "" || strings.Contains(u.Host, ",") {
		return nil, errors.New("the URL needs a host and a database")
	}
	q, err := parseKnown(u, mysqlParameters...)
	if err != nil {
		return nil, err
	}
	t := &mysqlTarget{client: mysql.NewConfig(), table: q.Get("table"), limit: q.duration("timeout", 100*time.Millisecond, "4s")}
	if t.limit == 0 {
		t.limit = 4 * time.Second
	}
	port := u.Port()
	if port == "" {
		port = "3306"
	}
	t.client.User = u.User.Username()
	t.client.Passwd, _ = u.User.Password()
	t.client.Net, t.client.Addr, t.client.DBName = "tcp", net.JoinHostPort(u.Hostname(), port), database
	t.client.Timeout = t.limit
	t.client.Logger = &mysql.NopLogger{} // errors are returned as well
	switch q.Get("tls") {
	case "":
	case "on":
		t.client.TLSConfig = "true"
	case "skip-verify":
		t.client.TLSConfig = "skip-verify"
	default:
		q.fail("tls", "write on, or skip-verify")
	}
	t.keep(t.client.Passwd)
	return t, q.err
}

// prepare connects once. It creates the table if there is none.
func (t *mysqlTarget) prepare(ctx context.Context, records *sqlrecords.Records) error {
	missing := func(err error) bool {
		server, ok := errors.AsType[*mysql.MySQLError](err)
		return ok && server.Number == noSuchTable
	}
	return firstRequest(ctx, t.limit, records, missing, func(err error) error { return explain(err, t.secrets, "", tableRights) })
}

// tableRights is the hint for a server that refuses a user of a table.
const tableRights = "check the user, the password and the database in FENCELOCK_URL; the user needs SELECT, INSERT, UPDATE and DELETE on the table, and CREATE if there is none"

// mysqlPart returns a table of its own. Its name is that of the table of the URL and the letters and
// digits of the prefix.
func mysqlPart(u *url.URL, prefix string) (*Part, error) {
	tooLong := partTable(u, prefix)
	target, err := parseMySQL(u)
	if err = cmp.Or(err, tooLong); err != nil {
		return nil, err
	}
	return &Part{URL: u.String(), Hosts: []string{target.client.Addr}, Dead: DeadLeases, sweep: target.sweep}, nil
}

// partTable changes the table of a URL to one for a part. It returns an error if its name is too long.
func partTable(u *url.URL, prefix string) error {
	q := u.Query()
	table := cmp.Or(q.Get("table"), recordsTable) + "_" + strings.Map(func(r rune) rune {
		if r == '_' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' {
			return r
		}
		return '_'
	}, prefix)
	q.Set("table", table)
	u.RawQuery = q.Encode()
	if len(table) > longestTable {
		return fmt.Errorf("the table %s needs a name of at most %d characters: write a shorter --prefix", table, longestTable)
	}
	return nil
}

// longestTable is the longest name of a table of sqlrecords.
const longestTable = 55

// sweep counts the rows of the table and drops it. If there is no table, it returns an error unless
// the user may drop one, without which a run would leave it.
func (t *mysqlTarget) sweep(ctx context.Context, remove bool) (n int, err error) {
	connector, err := mysql.NewConnector(t.client)
	if err != nil {
		return 0, errors.New(t.hide(err.Error()))
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	err = db.QueryRowContext(ctx, "SELECT count(*) FROM "+t.table).Scan(&n)
	server, ok := errors.AsType[*mysql.MySQLError](err)
	switch {
	case ok && server.Number == noSuchTable: // the rights are checked before it is found that this one does not exist
		_, err = db.ExecContext(ctx, "DROP TABLE IF EXISTS fencelock_"+rand.Text())
	case err == nil && remove:
		_, err = db.ExecContext(ctx, "DROP TABLE "+t.table)
	}
	if err == nil {
		return n, nil
	}
	err = fmt.Errorf("%w: %s", driver.ErrUnavailable, t.hide(err.Error()))
	if strings.Contains(err.Error(), "DROP command denied") {
		err = &HintError{Err: err, Hint: "a user with CREATE and DROP, in a database for tests"}
	}
	return n, err
}

// noSuchTable is the number of the error for a table that does not exist.
const noSuchTable = 1146
