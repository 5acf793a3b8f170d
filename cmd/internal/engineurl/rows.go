//go:build unix

package engineurl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/inspect"
	"github.com/fencelock/fencelock/recordlock"
	"github.com/fencelock/fencelock/stores/pgrecords"
)

// rowsParameters are the parameters of locks in rows. The other ones are passed on, except for those of
// advisory locks, which have no effect here.
var rowsParameters = []string{"table", "listen", "timeout"}

// Rows is a parsed URL of locks in rows. They have a scheme of their own, and no parameter of
// postgres://, since the two do not exclude each other.
type Rows struct {
	*Postgres
	Config pgrecords.Config
	Direct *pgconn.Config // of the connection that listens; nil if there is none
}

// Open connects once, creates the table, and the trigger of listen=, if there is none, and returns the
// engine.
func (t *Rows) Open(ctx context.Context, _ *slog.Logger) (driver.Engine, func() error, error) {
	pgrecords.NoCancel(t.Pool)
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), t.Pool) // the pool outlives ctx
	if err != nil {
		return nil, nil, errors.New(t.Hide(err.Error()))
	}
	plain := pgrecords.New(pool, &t.Config)
	var records Records = plain
	e, end := &rowsEngine{pool: pool, table: t.Config.Table}, pool.Close
	if t.Direct != nil {
		e.listener = plain.Listen(t.Direct)
		records, end = e.listener, func() { _ = e.listener.Close(); pool.Close() }
	}
	e.Engine = recordlock.New(records, &recordlock.Config{Name: "postgres+rows"})
	closeAll := func() error { return closeBoth(e.Close, end) }
	missing := func(err error) bool { return NoTable(err) || err == nil && t.Direct != nil }
	if err := firstRequest(ctx, t.limit, records, missing, func(err error) error { return t.explain(err, "", tableRights) }); err != nil {
		return nil, nil, errors.Join(err, closeAll())
	}
	return e, closeAll, nil
}

// parseRows parses a URL. It does not connect.
func parseRows(u *url.URL) (*Rows, error) {
	q, err := parseQuery(u)
	if err != nil {
		return nil, err
	}
	for name := range q.Values {
		if slices.Contains(postgresParameters, name) && !slices.Contains(rowsParameters, name) {
			return nil, &HintError{Err: fmt.Errorf("%s: %s is a parameter of postgres://, and has no effect here", u.Scheme, name), Hint: "leave it out"}
		}
	}
	plain := *u
	plain.Scheme = "postgres"
	inner, err := url.Parse(without(&plain, rowsParameters))
	if err != nil {
		return nil, errors.New("the URL cannot be understood")
	}
	t := &Rows{Config: pgrecords.Config{Table: cmp.Or(q.Get("table"), recordsTable), Timeout: q.duration("timeout", 100*time.Millisecond, "10s")}}
	if t.Postgres, err = parsePostgres(inner); err != nil {
		return nil, err
	}
	if !q.Has("pool_max_conns") {
		t.Pool.MaxConns = mysqlConnections
	}
	if !q.Has("pool_ping_timeout") {
		t.Pool.PingTimeout = 300 * time.Millisecond // a NAT may have dropped all idle connections
	}
	if q.Has("listen") {
		t.keep(q.Get("listen"))
		if t.Direct, err = pgconn.ParseConfig(q.Get("listen")); err != nil || !strings.HasPrefix(q.Get("listen"), "postgres") {
			return nil, errors.New("listen= is no URL of PostgreSQL; write postgres://user:password@host/database, with & as %26")
		}
		t.keep(t.Direct.Password)
	}
	return t, q.err
}

// NoTable reports whether the server has answered that the table does not exist.
func NoTable(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == noSuchRelation
}

// recordsTable is the table of records in SQL if the URL names none.
const recordsTable = "fencelock_record"

// noSuchRelation is the code of the error for a table that does not exist.
const noSuchRelation = "42P01"

// rowsEngine is an engine in rows.
type rowsEngine struct {
	*recordlock.Engine
	pool     *pgxpool.Pool
	table    string              // as the URL has it
	listener *pgrecords.Listener // nil if there is none
}

// Inspect also checks that no process uses advisory locks in the same database, and that the connection
// which listens gets notifications.
func (e *rowsEngine) Inspect(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	findings, err := e.Engine.Inspect(ctx, ttl)
	if err != nil {
		return nil, err
	}
	tables, advisory, err := e.neighbours(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	if tables != "" {
		findings = append(findings, inspect.Found("other tables", driver.Warning, "other schemas have a table of this name: "+tables,
			"a process whose role or search_path leads to another table has other locks", "write the schema in all URLs, as in table=public."+e.table))
	}
	const other = "other locks"
	if advisory {
		findings = append(findings, inspect.Found(other, driver.Warning, "the database also has the schema fencelock, of postgres:// and pglock",
			"these locks and those in rows do not exclude each other: a process of each kind can hold the same lock", "use postgres+rows:// in all processes, then drop the schema fencelock"))
	} else {
		findings = append(findings, inspect.Passed(other, "no advisory locks of fencelock in this database"))
	}
	if e.listener == nil {
		return findings, nil
	}
	limited, cancel := context.WithTimeout(ctx, greetLimit)
	defer cancel()
	if err := e.listener.Ready(limited); err != nil {
		return append(findings, inspect.Found("notifications", driver.Warning, driver.OneLine(err).Error(), "waiters poll", "correct listen= in FENCELOCK_URL")), nil
	}
	return append(findings, inspect.Passed("notifications", "they arrive")), nil
}

// neighbours returns the tables of the same name in other schemas, unless the URL names the schema, and
// whether the database has the schema of advisory locks. It does without a Scan of pgx, which would make the
// command larger by two megabytes.
func (e *rowsEngine) neighbours(ctx context.Context) (tables string, advisory bool, err error) {
	conn, err := e.pool.Acquire(ctx)
	if err != nil {
		return "", false, err
	}
	defer conn.Release()
	r := conn.Conn().PgConn().ExecParams(ctx, `SELECT to_regclass('fencelock.held')::text, (SELECT string_agg(oid::regclass::text, ', ')
		FROM pg_catalog.pg_class WHERE relname = lower($1::text) AND relkind IN ('r', 'p') AND oid <> to_regclass($1::text))`,
		[][]byte{[]byte(e.table)}, nil, nil, nil).Read()
	if r.Err != nil || len(r.Rows) == 0 {
		return "", false, r.Err
	}
	return string(r.Rows[0][1]), r.Rows[0][0] != nil, nil
}
