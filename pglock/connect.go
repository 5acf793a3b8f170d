package pglock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// dialLimit bounds one attempt to connect and to check the server.
const dialLimit = 10 * time.Second

// dial opens a session whose leases run for ttl, and checks all that the leases
// rest on before anything is locked. A ttl of 0 makes the engine's own session,
// which holds no locks.
func (e *Engine) dial(ctx context.Context, ttl time.Duration) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	c, err := e.connect(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{engine: e, ttl: ttl, holds: map[*hold]struct{}{}, keys: map[int64]int{}}
	if err = s.check(ctx, c); err == nil {
		err = s.enter(ctx, c)
	}
	if err == nil {
		s.wire, err = newWire(c, e.hear)
	}
	if err != nil {
		_ = c.Close(ctx) // it is not needed any more
		return nil, err
	}
	if err := e.enlist(s); err != nil {
		s.close(err)
		return nil, err
	}
	go s.read()  // ends with the connection
	go s.watch() // ends with the connection
	return s, nil
}

// connect opens a connection as the application's pool would.
func (e *Engine) connect(ctx context.Context) (*pgconn.PgConn, error) {
	pool := e.pool.Config()
	if pool.BeforeConnect != nil {
		if err := pool.BeforeConnect(ctx, pool.ConnConfig); err != nil {
			return nil, err
		}
	}
	cfg := pool.ConnConfig.Config.Copy()
	cfg.OnNotice, cfg.OnNotification, cfg.AfterConnect = nil, nil, nil
	cfg.RuntimeParams["client_encoding"] = "UTF8"
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "fencelock"
	}
	return pgconn.ConnectConfig(ctx, cfg)
}

// The probe is hashed on both sides; it has more than one block and every size of
// rune.
const probe = "fencelock: größe, 長さ, 🔒"

const checkSQL = `SELECT pg_backend_pid(), current_setting('server_version_num'), pg_is_in_recovery(),
	hashtextextended($1::text, 0), to_regproc('fencelock.` + newest + `') IS NOT NULL,
	current_setting('max_locks_per_transaction')::bigint *
		(current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint)`

// check refuses servers on which the locks could not keep their promises.
func (s *session) check(ctx context.Context, c *pgconn.PgConn) error {
	r, err := one(c.ExecParams(ctx, checkSQL, [][]byte{[]byte(probe)}, nil, nil, nil).Read())
	if err != nil {
		return err
	}
	s.backend = int32(r.int(0))
	s.room = int(r.int(5) * 6 / 10)
	switch version := r.int(1); {
	case version < 140000:
		return refuse("the server is PostgreSQL %d, which cannot end the locks of a frozen client (idle_session_timeout); use 14 or later", version/10000)
	case r.text(2) == "t":
		return refuse("the server is a hot standby, whose locks exclude nobody on the primary; connect to the primary (target_session_attrs=read-write)")
	case r.int(3) != hashText(probe):
		return refuse("the server hashes names differently; use a database in UTF8")
	case uint32(r.int(0)) != c.PID() && !s.engine.cfg.AllowPooler:
		return refuse("there is a connection pooler in between; connect to the server directly, or set AllowPooler if it is in session mode")
	case r.text(4) != "t":
		return createOnce(ctx, c)
	}
	return nil
}

// one returns the only row of a result.
func one(r *pgconn.Result) (row, error) {
	switch {
	case r.Err != nil:
		return nil, r.Err
	case len(r.Rows) != 1:
		return nil, fmt.Errorf("%d rows instead of one", len(r.Rows))
	}
	return row(r.Rows[0]), nil
}

// settings are what a session must have, by name, in the units of pg_settings.
// The server ends it, and frees its locks, after idle_session_timeout without a
// statement.
func (s *session) settings() map[string]string {
	ttl := strconv.FormatInt(s.ttl.Milliseconds(), 10)
	return map[string]string{
		"idle_session_timeout":                ttl,
		"idle_in_transaction_session_timeout": ttl,
		"statement_timeout":                   "0",
		"lock_timeout":                        "0",
		"client_encoding":                     "UTF8",
		"default_transaction_isolation":       "read committed",
		"default_transaction_read_only":       "off",
	}
}

// wishes are settings that help and may be missing on some systems and servers.
func (s *session) wishes() map[string]string {
	ms := strconv.FormatInt(max(s.ttl, ownLimit/3).Milliseconds(), 10)
	w := map[string]string{
		"tcp_user_timeout":                 ms,
		"client_connection_check_interval": strconv.FormatInt(max(s.ttl/3, time.Second/10).Milliseconds(), 10),
		"synchronous_commit":               "off", // fencelock.durable is for what must last
		"plan_cache_mode":                  "force_generic_plan",
		"enable_seqscan":                   "off", // plans are made while the tables are empty
		"jit":                              "off",
		"transaction_timeout":              "0",
	}
	return w
}

const setSQL = `SELECT set_config(name, value, false) FROM json_each_text($1::json) AS x(name, value) WHERE current_setting(name, true) IS NOT NULL`

const readSQL = `SELECT name, setting FROM pg_settings WHERE name IN (SELECT json_object_keys($1::json))`

const enterSQL = `SELECT id, epoch, closed FROM fencelock.enter($1::bigint, $2::bigint)`

// enter makes the connection a lock session: settings, which are read back, and
// its place in the tables.
func (s *session) enter(ctx context.Context, c *pgconn.PgConn) error {
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
	if err := s.agreed(got.Rows); err != nil {
		return err
	}
	args := encode([]any{s.ttl, s.engine.cfg.MaxTTL})
	r, err := one(c.ExecParams(ctx, enterSQL, args, nil, nil, nil).Read())
	if err != nil {
		return err
	}
	s.id, s.epoch, s.closed = int32(r.int(0)), r.int(1), time.Now().Add(r.millis(2))
	if s.ttl > 0 {
		// It does not listen: the server could not end a frozen client's session
		// while it waits for the client to take notifications.
		return nil
	}
	return c.Exec(ctx, "LISTEN fencelock").Close()
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

// errShared is what a pooler that shares server connections looks like.
var errShared = errors.New("two connections ended up in one server process")

// enlist makes a session known to the engine, and refuses one that has the server
// process of another: a pooler in transaction mode gave it away.
func (e *Engine) enlist(s *session) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done {
		return refuse("the engine is closed")
	}
	for o := range e.sessions {
		if o.backend == s.backend && o.over() == nil {
			defer o.kill(errShared) // who knows what the other one did to its settings
			return refuse("%w: the pooler is not in session mode; use session pooling, or connect to the server directly", errShared)
		}
	}
	e.sessions[s] = struct{}{}
	return nil
}
