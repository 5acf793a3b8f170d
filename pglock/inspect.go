package pglock

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/inspect"
	"github.com/fencelock/fencelock/pglock/internal/pipe"
	"github.com/jackc/pgx/v5/pgconn"
)

// Inspect checks the server, its settings, the role's permissions and the connection for anything
// that weakens the guarantees of locks with the given TTL. It acquires locks under probe names on
// an engine of its own and removes their rows. If there is no schema and the role may create it,
// Inspect does. It returns an error if a server cannot be queried.
func (e *Engine) Inspect(ctx context.Context, ttl time.Duration) ([]driver.Finding, error) {
	if err := e.Ping(ctx); err != nil {
		return nil, err
	}
	trial := New(e.dialer.pool, &e.dialer.cfg)
	defer func() { _ = trial.Close() }() // it holds nothing
	t := inspect.Trial{Engine: trial, Name: inspect.NewName(), TTL: ttl, Denied: denied,
		Grant: "ask an administrator to run the SQL that fencelock init prints; records need a separate grant (GRANT SELECT, INSERT, UPDATE, DELETE ON fencelock.record TO the role)"}
	findings, ended := t.Run(ctx)
	err := trial.dialer.eachHost(context.WithoutCancel(ctx), func(ctx context.Context, c *pgconn.PgConn, _ string) error {
		defer c.Close(ctx)
		sweep(ctx, c, t.Names())
		r, err := one(c.ExecParams(ctx, inspectSQL, nil, nil, nil, nil).Read())
		if err == nil {
			findings = append(findings, pooler(uint32(r.Int(0)) == c.PID(), e.dialer.cfg.AllowPooler), durability(r.Text(1), r.Text(2)),
				lockTable(r.Int(3), r.Int(4), r.Int(5)), snapshot(ctx, c), otherLocks(ctx, c))
			findings = append(findings, schema(ctx, c)...)
		}
		return err
	})
	if err = cmp.Or(ended, err); err != nil {
		return nil, failure(err)
	}
	return findings, nil
}

// denied reports whether the role lacks a permission.
func denied(err error) bool {
	pg, ok := serverError(err)
	return ok && pg.Code == insufficientPrivilege
}

// sweep removes the rows of the probe names. An error means that there are none, or that the role
// could not have written them.
func sweep(ctx context.Context, c *pgconn.PgConn, names []string) {
	var keys []string
	for _, name := range names {
		keys = append(keys, fmt.Sprint(keyOf(name)))
	}
	for _, sql := range []string{
		"DELETE FROM fencelock.held WHERE owner IS NULL AND key = ANY ($1::bigint[])",
		"DELETE FROM fencelock.minimum WHERE key = ANY ($1::bigint[])",
	} {
		_ = c.ExecParams(ctx, sql, [][]byte{[]byte("{" + strings.Join(keys, ",") + "}")}, nil, nil, nil).Read()
	}
	_ = c.ExecParams(ctx, "DELETE FROM fencelock.record WHERE key = ANY (string_to_array($1::text, ','))",
		[][]byte{[]byte(strings.Join(names, ","))}, nil, nil, nil).Read()
}

var inspectSQL = numbers.Replace(`SELECT pg_backend_pid(), current_setting('fsync'), current_setting('full_page_writes'),
	current_setting('max_locks_per_transaction')::bigint *
		(current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint),
	(SELECT count(*) FROM pg_locks WHERE NOT fastpath),
	(SELECT count(*) FROM pg_locks l WHERE NOT l.fastpath AND l.pid IN (SELECT s.pid FROM ` + sessionLocks + ` s))`)

// pooler checks whether the answering server process is the one that the connection was made to.
func pooler(direct, allowed bool) driver.Finding {
	switch {
	case direct:
		return inspect.Passed("pooler", "a direct connection")
	case allowed:
		return inspect.Found("pooler", driver.Warning, "a connection pooler, which is allowed",
			"unless it is in session mode, it takes locks away or gives them to others", "make sure that it is in session mode, or connect to the server directly")
	}
	return inspect.Found("pooler", driver.Broken, "a connection pooler",
		"it may take locks away or give them to others, so the engine refuses it",
		inRows+"; or allow a pooler that is in session mode (AllowPooler, pooler=allow)")
}

// durability checks the settings that protect data when the server's host crashes.
func durability(fsync, pages string) driver.Finding {
	saw := fmt.Sprintf("fsync = %s, full_page_writes = %s", fsync, pages)
	if fsync == "on" && pages == "on" {
		return inspect.Passed("durability", saw)
	}
	return inspect.Found("durability", driver.Warning, saw, "after a crash of the server's host, fencing tokens may be issued twice",
		"set both to on")
}

// lockTable checks the free space in the server's lock table, which all locks of all databases
// share. Renewals need some of it too.
func lockTable(all, used, ours int64) driver.Finding {
	saw := fmt.Sprintf("space for %d locks of all kinds, %d used, %d of them by fencelock", all, used, ours)
	if used*10 <= all*6 {
		return inspect.Passed("lock table", saw)
	}
	return inspect.Found("lock table", driver.Warning, saw, "when it is full, renewals fail and held locks are lost",
		"raise max_locks_per_transaction")
}

var schemaSQL = numbers.Replace(`SELECT ` + revisionSQL + `,
	(SELECT count(*) FROM fencelock.beat b WHERE NOT EXISTS (SELECT FROM ` + sessionLocks + ` s WHERE s.id = b.session)),
	(SELECT max_ttl FROM fencelock.epoch)`)

// longWait is a MaxTTL that closes the server for a long time after each restart.
const longWait = time.Hour

// manyLeftovers is how many sessions that have ended may have left a row. A sweep deletes more than
// that in a minute.
const manyLeftovers = 10000

// schema checks that the schema has the functions of this program, that the rows of sessions that
// have ended are deleted, and how long a restart closes the server. Without a schema there is nothing to check.
func schema(ctx context.Context, c *pgconn.PgConn) []driver.Finding {
	r, err := one(c.ExecParams(ctx, schemaSQL, nil, nil, nil, nil).Read())
	if err != nil {
		return nil
	}
	functions, ended := fmt.Sprintf("functions of revision %d", r.Int(0)), fmt.Sprintf("%d sessions that have ended left rows", r.Int(1))
	wait := fmt.Sprintf("after a restart of the server nothing is granted for %v, the longest MaxTTL of any program", r.Millis(2))
	all := []driver.Finding{inspect.Passed("schema", functions), inspect.Passed("leftovers", ended), inspect.Passed("restart wait", wait)}
	if r.Int(0) < functionsRevision {
		all[0] = inspect.Found("schema", driver.Warning, functions+", which is of an earlier program", "faults of that program remain",
			"let the owner of the schema run fencelock init, or the SQL that it prints")
	}
	if r.Int(1) > manyLeftovers {
		all[1] = inspect.Found("leftovers", driver.Warning, ended, "operations read over more rows, and the tables grow",
			"keep a process with an engine running: it deletes them within minutes")
	}
	if r.Millis(2) > longWait {
		all[2] = inspect.Found("restart wait", driver.Warning, wait, "a short restart stops all work for that time",
			"lower MaxTTL (max-ttl) in all programs, then, as the owner of the schema: UPDATE fencelock.epoch SET max_ttl = the milliseconds")
	}
	return all
}

// tablesSQL finds tables of records that the role may read.
const tablesSQL = `SELECT c.oid::regclass FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
	WHERE a.attname = 'record_key' AND a.atttypid = 'bytea'::regtype AND NOT a.attisdropped AND c.relkind IN ('r', 'p')
	AND has_schema_privilege(c.relnamespace, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') LIMIT 20`

// otherLocks checks that no process keeps its locks in rows of the same database. The keys of such rows
// have the default prefix of package recordlock. They are deleted some minutes after their last use.
func otherLocks(ctx context.Context, c *pgconn.PgConn) driver.Finding {
	const check = "other locks"
	tables := c.ExecParams(ctx, tablesSQL, nil, nil, nil, nil).Read()
	if tables.Err != nil {
		return inspect.Unchecked(check, tables.Err, "allow the role to read pg_attribute and pg_class")
	}
	for _, row := range tables.Rows {
		table := pipe.Row(row).Text(0)
		got := c.ExecParams(ctx, "SELECT FROM "+table+" WHERE record_key >= 'fencelock.lock/' AND record_key < 'fencelock.lock0' LIMIT 1", nil, nil, nil, nil).Read()
		if len(got.Rows) > 0 {
			return inspect.Found(check, driver.Warning, "the table "+table+" has locks in rows, of postgres+rows:// or another program with records",
				"these locks and the engine's do not exclude each other: a process of each kind can hold the same lock", "use postgres:// or postgres+rows:// in all processes")
		}
	}
	return inspect.Passed(check, "no locks in rows in this database")
}

// oldSnapshot is the age of a snapshot, in transactions, above which there is a warning.
const oldSnapshot = 10000

// Snapshots that the role may not see have no age. Snapshots of other databases do not matter here.
const snapshotSQL = `SELECT what, age FROM (
	SELECT 'server process ' || pid || concat(' (' || nullif(application_name, '') || ')'), age(backend_xmin)
	FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND (datname = current_database() OR datname IS NULL)
	UNION ALL SELECT 'prepared transaction ' || gid, age(transaction) FROM pg_prepared_xacts WHERE database = current_database()
	UNION ALL SELECT 'replication slot ' || slot_name, age(xmin) FROM pg_replication_slots
) AS x(what, age) WHERE age IS NOT NULL ORDER BY age DESC LIMIT 1`

// snapshot checks the age of the database's oldest snapshot. VACUUM keeps all row versions that it
// may see, and each operation on a busy name has to read over them.
func snapshot(ctx context.Context, c *pgconn.PgConn) driver.Finding {
	const check = "snapshots"
	got := c.ExecParams(ctx, snapshotSQL, nil, nil, nil, nil).Read()
	if got.Err != nil {
		return inspect.Unchecked(check, got.Err, "allow the role to read pg_stat_activity")
	}
	if len(got.Rows) == 0 {
		return inspect.Passed(check, "none")
	}
	who, age := pipe.Row(got.Rows[0]).Text(0), pipe.Row(got.Rows[0]).Int(1)
	saw := fmt.Sprintf("the oldest belongs to %s and is %d transactions old", who, age)
	if age <= oldSnapshot {
		return inspect.Passed(check, saw)
	}
	return inspect.Found(check, driver.Warning, saw, "VACUUM cannot remove row versions that it may see: operations on busy names become slower, until renewals are too late",
		"end that transaction, or drop the slot; set idle_in_transaction_session_timeout")
}
