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

// The probe is hashed on both sides; it has more than one block and every size of
// rune.
const probe = "fencelock: größe, 長さ, 🔒"

const checkSQL = `SELECT pg_backend_pid(), current_setting('server_version_num'), pg_is_in_recovery(),
	pg_catalog.hashtextextended($1::text, 0::bigint), version(),
	current_setting('max_locks_per_transaction')::bigint *
		(current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint),
	current_setting('transaction_read_only')`

// check refuses servers on which the locks could not keep their promises.
func (s *session) check(ctx context.Context, c *pgconn.PgConn) error {
	if c.ParameterStatus("crdb_version") != "" {
		return refuse("the server is CockroachDB, whose advisory locks lock nothing; use PostgreSQL")
	}
	r, err := one(c.ExecParams(ctx, checkSQL, [][]byte{[]byte(probe)}, nil, nil, nil).Read())
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == untranslatable {
		return refuse("the database cannot store all names; use a database in UTF8: %w", err)
	}
	if err != nil {
		return err
	}
	s.backend, s.slots = int32(r.Int(0)), int(r.Int(5))
	switch version := r.Int(1); {
	case strings.Contains(r.Text(4), "CockroachDB"):
		return refuse("the server is CockroachDB, whose advisory locks lock nothing; use PostgreSQL")
	case version < 140000:
		return refuse("the server is PostgreSQL %d, which cannot end the locks of a frozen client (idle_session_timeout); use 14 or later", version/10000)
	case r.Text(2) == "t":
		return refuse("the server is a hot standby, whose locks exclude nobody on the primary; connect to the primary (target_session_attrs=read-write)")
	case r.Text(6) == "on":
		return refuse("the server is read-only for this role (default_transaction_read_only); connect to a primary that takes writes, or let the role write")
	case r.Int(3) != hashText(probe):
		return refuse("the server hashes names differently; use a database in UTF8")
	case uint32(r.Int(0)) != c.PID() && !s.dialer.cfg.AllowPooler:
		return refuse("there is a connection pooler in between; connect to the server directly, or set AllowPooler if it is in session mode")
	}
	return nil
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

// settings are what a session must have, by name, in the units of pg_settings.
// The server ends it, and frees its locks, after idle_session_timeout without a
// statement.
func (s *session) settings() map[string]string {
	wait := max(s.ttl/32, 20*time.Millisecond) // with what else is under way, less than a renewal may take
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
		"search_path":                         "pg_catalog, pg_temp", // whoever writes to another schema might put functions in the way
	}
}

// wishes are settings that help and may be missing on some systems and servers.
func (s *session) wishes() map[string]string {
	limit := max(s.ttl, s.dialer.cfg.Timeout)
	nested := "on"
	if s.ttl == 0 {
		nested = "off" // the server takes pg_locks for short, and would look through all of it for each lock
	}
	return map[string]string{
		"enable_nestloop":                  nested,
		"tcp_user_timeout":                 strconv.FormatInt(limit.Milliseconds(), 10),
		"tcp_keepalives_idle":              strconv.Itoa(max(1, int(limit.Seconds()/2))),
		"tcp_keepalives_interval":          strconv.Itoa(max(1, int(limit.Seconds()/8))),
		"tcp_keepalives_count":             "4",
		"client_connection_check_interval": strconv.FormatInt(min(max(s.ttl/3, time.Second/10), time.Second).Milliseconds(), 10),
		"client_min_messages":              "error", // an unlock of what is free is no news
		"synchronous_commit":               "off",   // fencelock.durable is for what must last
		"plan_cache_mode":                  "force_generic_plan",
		"enable_seqscan":                   "off", // plans are made while the tables are empty
		"enable_bitmapscan":                "off", // which passes over the dead rows of a busy name each time
		"jit":                              "off",
		"max_parallel_workers_per_gather":  "0", // processes that cost more than what they would do
		"transaction_timeout":              "0",
	}
}

const setSQL = `SELECT set_config(name, value, false) FROM json_each_text($1::json) AS x(name, value) WHERE current_setting(name, true) IS NOT NULL`

const readSQL = `SELECT name, setting FROM pg_settings WHERE name IN (SELECT json_object_keys($1::json))`

// set gives the connection its settings, and reads them back.
func (s *session) set(ctx context.Context, c *pgconn.PgConn) error {
	wishes := s.wishes()
	if r := c.ExecParams(ctx, setSQL, [][]byte{object(wishes)}, nil, nil, nil).Read(); r.Err != nil {
		delete(wishes, "client_connection_check_interval") // some systems cannot
		_ = c.ExecParams(ctx, setSQL, [][]byte{object(wishes)}, nil, nil, nil).Read()
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

// complete makes sure that the database has the schema, of this version.
func complete(ctx context.Context, c *pgconn.PgConn) error {
	got := c.ExecParams(ctx, "SELECT version FROM fencelock.epoch", nil, nil, nil, nil).Read()
	switch {
	case missing(got.Err):
		return create(ctx, c)
	case got.Err != nil:
		return got.Err
	case len(got.Rows) == 0:
		return refuse("fencelock.epoch is empty, as after a restore of the schema without its data; drop the schema fencelock, and run fencelock init")
	}
	if v := pipe.Row(got.Rows[0]).Int(0); v != schemaVersion {
		return refuse("the schema fencelock is of version %d, and this program needs version %d: %s", v, schemaVersion, otherVersion)
	}
	return nil
}

const learnSQL = `SELECT proname, oid::bigint FROM pg_proc WHERE pronamespace = 'fencelock'::regnamespace
UNION ALL SELECT proname, oid::bigint FROM pg_proc WHERE oid = ANY (ARRAY['pg_catalog.pg_backend_pid()'::regprocedure,
	'pg_catalog.pg_advisory_unlock(bigint)'::regprocedure, 'pg_catalog.pg_advisory_unlock_shared(bigint)'::regprocedure])`

// learn finds the functions that the session calls.
func (s *session) learn(ctx context.Context, c *pgconn.PgConn) error {
	got := c.ExecParams(ctx, learnSQL, nil, nil, nil, nil).Read()
	for _, r := range got.Rows {
		s.fn[string(r[0])] = pipe.Func(pipe.Row(r).Int(1))
	}
	return got.Err
}

// enter makes the connection a session of the engine. What may take long is done
// before it carries leases.
func (s *session) enter(ctx context.Context, c *pgconn.PgConn) error {
	args := [][]byte{strconv.AppendInt(nil, s.dialer.cfg.MaxTTL.Milliseconds(), 10), strconv.AppendInt(nil, time.Now().UnixMicro(), 10)}
	r, err := one(c.ExecParams(ctx, `SELECT r[1], r[2] FROM string_to_array(fencelock.register($1::bigint, $2::bigint), '|') r`,
		args, nil, nil, nil).Read())
	if err != nil {
		return err
	}
	s.id, s.closed = int32(r.Int(0)), time.Now().Add(r.Millis(1))
	if s.ttl > 0 {
		// It does not listen: the server could not end a frozen client's session
		// while it waits for the client to take notifications.
		return c.Exec(ctx, "BEGIN; SELECT fencelock.ready("+strconv.Itoa(int(s.id))+"); ROLLBACK").Close()
	}
	return c.Exec(ctx, "LISTEN fencelock").Close()
}

// object writes a JSON object.
func object(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // texts and numbers always marshal
	}
	return b
}

// agreed refuses a server that does not have the settings it was asked for.
func (s *session) agreed(got [][][]byte) error {
	want := s.settings()
	for _, r := range got {
		if name, value := string(r[0]), string(r[1]); want[name] != value {
			return refuse("the server keeps %s at %s, not %s; if there is a pooler use session pooling, and let nothing else change the settings of a session", name, value, want[name])
		}
		delete(want, string(r[0]))
	}
	for name := range want {
		return refuse("the server has no setting %s", name)
	}
	return nil
}
