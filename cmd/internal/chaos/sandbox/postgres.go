//go:build unix

package sandbox

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencelock/fencelock/cmd/internal/engineurl"
	"github.com/fencelock/fencelock/driver"
)

// ofPostgres returns the rows of the names with a prefix.
func ofPostgres(u *url.URL, p *engineurl.Postgres, prefix string) *Sandbox {
	conn := p.Pool.ConnConfig
	s := &Sandbox{URL: u.String(), Names: prefix, Hosts: []string{conn.Host}, Local: strings.HasPrefix(conn.Host, "/"), sweep: (&names{Postgres: p, prefix: prefix}).sweep}
	for _, f := range conn.Fallbacks {
		s.Hosts = append(s.Hosts, f.Host)
	}
	return s
}

// names are the rows of names with a prefix in PostgreSQL.
type names struct {
	*engineurl.Postgres
	prefix string
	made   bool // the schema did not exist before: the engine has made it
}

// tables have a row for each name, and a column with it.
var tables = []string{"held", "sharer", "queued", "minimum", "resized"}

// anySchema returns a row if the engine has made its schema.
const anySchema = "SELECT WHERE to_regclass('fencelock.epoch') IS NOT NULL AND $1 <> ''"

// dropUnused drops the schema unless some process uses it.
func dropUnused() string {
	all := append([]string{"record", "rate"}, tables...)
	return fmt.Sprintf(`BEGIN;
LOCK TABLE fencelock.%s;
DO $$ BEGIN
	IF NOT EXISTS (SELECT 1 FROM fencelock.%s) THEN
		SET LOCAL client_min_messages = warning;
		DROP SCHEMA fencelock CASCADE;
	END IF;
END $$;
COMMIT`, strings.Join(all, ", fencelock."), strings.Join(all, " UNION ALL SELECT 1 FROM fencelock."))
}

func (n *names) sweep(ctx context.Context, remove bool) (found int, err error) {
	conn, err := connect(ctx, n.Postgres)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(ctx) }()
	run := func(sql string) (found int) { // it does nothing after an error
		if err != nil {
			return 0
		}
		tag, failed := conn.ExecParams(ctx, sql, [][]byte{[]byte(n.prefix)}, nil, nil, nil).Close()
		err = failed
		return int(tag.RowsAffected())
	}
	exists, verb := run(anySchema) > 0, map[bool]string{false: "SELECT", true: "DELETE"}[remove]
	if exists {
		for _, table := range tables {
			found += run(verb + " FROM fencelock." + table + " WHERE starts_with(name, $1)")
		}
	}
	if exists && remove && n.made && err == nil {
		err = conn.Exec(ctx, dropUnused()).Close()
	}
	if err != nil {
		return found, fmt.Errorf("postgres: %s", n.Reason(err))
	}
	n.made = n.made || !exists
	return found, nil
}

// ofRows returns a table of its own; see ofMySQL.
func ofRows(u *url.URL, r *engineurl.Rows, prefix string) (*Sandbox, error) {
	table, err := ownTable(u, r.Config.Table, prefix)
	if err != nil {
		return nil, err
	}
	return &Sandbox{URL: u.String(), Hosts: []string{r.Pool.ConnConfig.Host}, Dead: DeadLeases, sweep: rows{r.Postgres, table}.sweep}, nil
}

// rows are the rows of a table in PostgreSQL.
type rows struct {
	*engineurl.Postgres
	table string
}

// sweep counts the rows of the table, and drops it with its trigger. A table without rows counts as one
// row, and so does a function with the name of the trigger's, since they may be those of somebody else.
func (r rows) sweep(ctx context.Context, remove bool) (n int, err error) {
	conn, err := connect(ctx, r.Postgres)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(ctx) }()
	tag, err := conn.Exec(ctx, "SELECT FROM "+r.table).ReadAll()
	if engineurl.NoTable(err) {
		remove = false
		tag, err = conn.Exec(ctx, "SELECT FROM pg_proc WHERE proname = lower('"+r.table[strings.LastIndexByte(r.table, '.')+1:]+"_notify')").ReadAll()
	} else {
		n = 1
	}
	if err == nil {
		n = max(n, int(tag[0].CommandTag.RowsAffected()))
	}
	if err == nil && remove {
		err = conn.Exec(ctx, "DROP TABLE "+r.table+"; DROP FUNCTION IF EXISTS "+r.table+"_notify()").Close()
	}
	if err != nil {
		return n, fmt.Errorf("postgres: %s", r.Reason(err))
	}
	return n, nil
}

func connect(ctx context.Context, p *engineurl.Postgres) (*pgconn.PgConn, error) {
	conn, err := pgconn.ConnectConfig(ctx, &p.Pool.ConnConfig.Config)
	if err != nil {
		return nil, fmt.Errorf("%w: postgres: %s", driver.ErrUnavailable, p.Reason(err))
	}
	return conn, nil
}
