package pglock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/pglock/internal/pipe"
	"github.com/jackc/pgx/v5/pgconn"
)

// The server hashes this probe to check that its hash function matches. It is longer than one block
// and has UTF-8 characters of every length.
const probe = "fencelock: größe, 長さ, 🔒"

const checkSQL = `SELECT pg_backend_pid(), current_setting('server_version_num'), pg_is_in_recovery(),
	pg_catalog.hashtextextended($1::text, 0::bigint), version(),
	current_setting('max_locks_per_transaction')::bigint *
		(current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint),
	current_setting('transaction_read_only'), current_setting('server_encoding')`

// check rejects servers on which the guarantees would not hold.
func (s *session) check(ctx context.Context, c *pgconn.PgConn) error {
	if c.ParameterStatus("crdb_version") != "" {
		return refuse("the server is CockroachDB, whose advisory locks have no effect; use PostgreSQL")
	}
	r, err := one(c.ExecParams(ctx, checkSQL, [][]byte{[]byte(probe)}, nil, nil, nil).Read())
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == untranslatable {
		return refuse("the database cannot store all names; use a database with the encoding UTF8: %w", err)
	}
	if err != nil {
		return s.withoutAnswer(ctx, err)
	}
	s.backend, s.slots = int32(r.Int(0)), int(r.Int(5))
	switch version := r.Int(1); {
	case strings.Contains(r.Text(4), "CockroachDB"):
		return refuse("the server is CockroachDB, whose advisory locks have no effect; use PostgreSQL")
	case version < 140000:
		return refuse("the server is PostgreSQL %d, which cannot end the session of a frozen client (idle_session_timeout); use PostgreSQL 14 or later", version/10000)
	case r.Text(2) == "t":
		return refuse("the server is a hot standby, whose locks do not exclude clients of the primary; connect to the primary (target_session_attrs=read-write)")
	case r.Text(6) == "on":
		return refuse("the server is read-only for this role (default_transaction_read_only); connect to a writable primary, or allow the role to write")
	case r.Text(7) != "UTF8":
		return refuse("the database has the encoding %s, which cannot store all names; use a database with the encoding UTF8", r.Text(7))
	case r.Int(3) != hashText(probe):
		return refuse("the server hashes names differently; use a database with the encoding UTF8")
	case uint32(r.Int(0)) == c.PID():
		return nil
	case !s.dialer.cfg.AllowPooler:
		return refuse("there is a connection pooler in between; " + inRows + "; or set AllowPooler if it is in session mode")
	}
	return s.checkPooler(ctx, c)
}

// inRows says what works where the engine does not.
const inRows = "keep the locks in rows (postgres+rows:// in the URL, or package pgrecords), which works behind every pooler; or connect to the server directly"

// poolerRounds is how often two connections through a pooler are compared.
const poolerRounds = 5

// checkPooler rejects a pooler that shares server connections, before anything is set on one. It
// compares the server processes of two connections: a pooler in transaction mode gives both the same
// one, or another one to each transaction. A pooler is checked once.
func (s *session) checkPooler(ctx context.Context, first *pgconn.PgConn) error {
	s.dialer.mu.Lock()
	known := s.dialer.pooled
	s.dialer.mu.Unlock()
	if known {
		return nil
	}
	second, err := s.dialer.connect(ctx, s.host)
	if err != nil {
		return err
	}
	defer second.Close(ctx)
	var pids [2]int64
	for round := range poolerRounds {
		for i, c := range []*pgconn.PgConn{first, second} {
			r, err := one(c.ExecParams(ctx, "SELECT pg_backend_pid()", nil, nil, nil, nil).Read())
			if err != nil {
				return s.withoutAnswer(ctx, err)
			}
			if round > 0 && r.Int(0) != pids[i] || r.Int(0) == pids[1-i] {
				return sharedConnections()
			}
			pids[i] = r.Int(0)
		}
	}
	s.dialer.mu.Lock()
	s.dialer.pooled = true
	s.dialer.mu.Unlock()
	return nil
}

// withoutAnswer explains why the first statements of a session get no answer.
func (s *session) withoutAnswer(ctx context.Context, err error) error {
	pg, ok := serverError(err)
	if s.dialer.cfg.AllowPooler && (ctx.Err() != nil || ok && pg.Code == protocolViolation) {
		return fmt.Errorf("the pooler gives no connection; raise its pool size (default_pool_size of PgBouncer), since each session needs one: %w", err)
	}
	return err
}

// one returns the only row of a result.
func one(r *pgconn.Result) (pipe.Row, error) {
	switch {
	case r.Err != nil:
		return nil, r.Err
	case len(r.Rows) != 1:
		return nil, fmt.Errorf("%d rows instead of one", len(r.Rows))
	}
	return r.Rows[0], nil
}

// settings returns the settings that a session must have, in the units of pg_settings. With
// idle_session_timeout the server ends the session, and so its locks, if no statement arrives in
// time.
func (s *session) settings() map[string]string {
	wait := max(s.ttl/32, 20*time.Millisecond) // together with other statements in flight, less than a renewal may take
	switch {
	case s.ttl == 0:
		wait = rowWait
	case s.waiter:
		wait = waitBound(s.ttl)
	}
	return map[string]string{
		"idle_session_timeout":                strconv.FormatInt(s.ttl.Milliseconds(), 10),
		"idle_in_transaction_session_timeout": strconv.FormatInt(s.ttl.Milliseconds(), 10),
		"statement_timeout":                   "0",
		"lock_timeout":                        strconv.FormatInt(wait.Milliseconds(), 10),
		"client_encoding":                     "UTF8",
		"default_transaction_isolation":       "read committed",
		"search_path":                         "pg_catalog, pg_temp", // so that functions in other schemas are never called
	}
}

// optionalSettings returns settings that help but are missing on some systems and server versions.
func (s *session) optionalSettings() map[string]string {
	limit := max(s.ttl, s.dialer.cfg.Timeout)
	nested := "on"
	if s.ttl == 0 {
		nested = "off" // the planner assumes that pg_locks is short, and would scan all of it for each lock
	}
	return map[string]string{
		"enable_nestloop":                  nested,
		"tcp_user_timeout":                 strconv.FormatInt(limit.Milliseconds(), 10),
		"tcp_keepalives_idle":              strconv.Itoa(max(1, int(limit.Seconds()/2))),
		"tcp_keepalives_interval":          strconv.Itoa(max(1, int(limit.Seconds()/8))),
		"tcp_keepalives_count":             "4",
		"client_connection_check_interval": strconv.FormatInt(min(max(s.ttl/3, time.Second/10), time.Second).Milliseconds(), 10),
		"client_min_messages":              "warning", // one says that a commit may get lost
		"synchronous_commit":               "off",     // fencelock.durable is called for what must be on disk
		"plan_cache_mode":                  "force_generic_plan",
		"enable_seqscan":                   "off", // plans are made while the tables are still empty
		"enable_bitmapscan":                "off", // a bitmap scan would visit the dead rows of a busy name each time
		"jit":                              "off",
		"max_parallel_workers_per_gather":  "0", // starting workers costs more than they save
		"transaction_timeout":              "0",
	}
}

const setSQL = `SELECT set_config(name, value, false) FROM json_each_text($1::json) AS x(name, value) WHERE current_setting(name, true) IS NOT NULL`

const readSQL = `SELECT name, setting FROM pg_settings WHERE name IN (SELECT json_object_keys($1::json))`

// set applies the settings and reads them back.
func (s *session) set(ctx context.Context, c *pgconn.PgConn) error {
	optional := s.optionalSettings()
	if r := c.ExecParams(ctx, setSQL, [][]byte{object(optional)}, nil, nil, nil).Read(); r.Err != nil {
		delete(optional, "client_connection_check_interval") // not supported on some systems
		_ = c.ExecParams(ctx, setSQL, [][]byte{object(optional)}, nil, nil, nil).Read()
	}
	want := object(s.settings())
	if r := c.ExecParams(ctx, setSQL, [][]byte{want}, nil, nil, nil).Read(); r.Err != nil {
		return r.Err
	}
	got := c.ExecParams(ctx, readSQL, [][]byte{want}, nil, nil, nil).Read()
	if got.Err != nil {
		return got.Err
	}
	return s.agreed(got.Rows)
}

// revisionSQL is the revision of the schema's functions; 0 if it is unknown.
const revisionSQL = `coalesce(substring(obj_description('fencelock'::regnamespace, 'pg_namespace') from 'revision ([0-9]{1,9})'), '0')::integer`

const versionSQL = "SELECT version, " + revisionSQL + `, pg_has_role((SELECT nspowner FROM pg_namespace WHERE nspname = 'fencelock'), 'USAGE')
FROM fencelock.epoch`

// complete makes sure that the database has the schema in this version. It replaces earlier
// functions if the role may.
func complete(ctx context.Context, c *pgconn.PgConn) error {
	got := c.ExecParams(ctx, versionSQL, nil, nil, nil, nil).Read()
	switch {
	case missing(got.Err):
		return create(ctx, c)
	case got.Err != nil:
		return got.Err
	case len(got.Rows) == 0:
		return refuse("the table fencelock.epoch is empty, probably because the schema was restored without its data; drop the schema fencelock and run fencelock init")
	}
	r := pipe.Row(got.Rows[0])
	if v := r.Int(0); v != schemaVersion {
		return refuse("the schema fencelock has version %d, but this program needs version %d: %s", v, schemaVersion, otherVersion)
	}
	if r.Int(1) < functionsRevision && r.Text(2) == "t" {
		err := create(ctx, c)
		if _, answered := serverError(err); !answered {
			return err
		} // else the earlier functions serve; fencelock inspect reports them
	}
	return nil
}

// later reports whether the functions are those of a later program, which this one works with.
func later(ctx context.Context, c *pgconn.PgConn) bool {
	r, err := one(c.ExecParams(ctx, versionSQL, nil, nil, nil, nil).Read())
	return err == nil && r.Int(0) == schemaVersion && r.Int(1) > functionsRevision
}

const learnSQL = `SELECT proname, oid::bigint FROM pg_proc WHERE pronamespace = 'fencelock'::regnamespace
UNION ALL SELECT proname, oid::bigint FROM pg_proc WHERE oid = ANY (ARRAY['pg_catalog.pg_backend_pid()'::regprocedure,
	'pg_catalog.pg_advisory_unlock(bigint)'::regprocedure, 'pg_catalog.pg_advisory_unlock_shared(bigint)'::regprocedure])`

// learn looks up the functions that the session calls.
func (s *session) learn(ctx context.Context, c *pgconn.PgConn) error {
	got := c.ExecParams(ctx, learnSQL, nil, nil, nil, nil).Read()
	for _, r := range got.Rows {
		s.fn[string(r[0])] = pipe.Func(pipe.Row(r).Int(1))
	}
	return got.Err
}

// enter registers the connection as a session of the engine. Slow steps are done now, before it
// carries leases.
func (s *session) enter(ctx context.Context, c *pgconn.PgConn) error {
	args := [][]byte{strconv.AppendInt(nil, s.dialer.cfg.MaxTTL.Milliseconds(), 10), strconv.AppendInt(nil, time.Now().UnixMicro(), 10)}
	r, err := one(c.ExecParams(ctx, `SELECT r[1], r[2] FROM string_to_array(fencelock.register($1::bigint, $2::bigint), '|') r`,
		args, nil, nil, nil).Read())
	if err == nil && c.CustomData()[unsynced] != nil {
		err = errLate // the next session waits again
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w (the first connection after a restart, or with a longer MaxTTL, writes to disk and to synchronous standbys): %w", errLate, err)
	}
	if err != nil {
		return err
	}
	sure := "SELECT fencelock.sure(" + string(args[0]) + ")"
	s.id, s.closed, s.rests = int32(r.Int(0)), time.Now().Add(r.Millis(1)), r.Int(1) > 0
	if s.ttl > 0 {
		// Do not listen here: while a frozen client does not read its notifications, the server
		// could not end its session.
		return c.Exec(ctx, "BEGIN; SELECT fencelock.ready("+strconv.Itoa(int(s.id))+"); ROLLBACK; "+sure).Close()
	}
	return c.Exec(ctx, "LISTEN fencelock; "+sure).Close()
}

// unsynced is the key of a connection's data that is set when the server has warned that the wait for a
// synchronous standby was cancelled.
const unsynced = "fencelock unsynced"

// warned notes such a warning, whose text is translated.
func warned(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == pipe.StandbyWait {
		c.CustomData()[unsynced] = true
	}
}

// object returns a JSON object.
func object(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // texts and numbers always marshal
	}
	return b
}

// agreed rejects a server that did not apply the settings.
func (s *session) agreed(got [][][]byte) error {
	want := s.settings()
	for _, r := range got {
		if name, value := string(r[0]), string(r[1]); want[name] != value {
			return refuse("the server keeps %s at %s instead of %s; if there is a pooler, use session pooling, and make sure that nothing else changes session settings", name, value, want[name])
		}
		delete(want, string(r[0]))
	}
	for name := range want {
		return refuse("the server has no setting %s", name)
	}
	return nil
}
