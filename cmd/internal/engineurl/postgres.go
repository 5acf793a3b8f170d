//go:build unix

package engineurl

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/pglock"
)

// postgresPatience limits the first connection, unless the URL has a connect_timeout.
const postgresPatience = 4 * time.Second

// longestTimeout is the longest timeout that PostgreSQL can be set to.
const longestTimeout = math.MaxInt32 * time.Millisecond

// postgresParameters are the parameters of fencelock. All others are passed to the client or the
// server.
var postgresParameters = []string{"pooler", "max-ttl", "max-waiters", "break-wait", "timeout", "failover-time"}

// postgresTarget is a parsed URL of PostgreSQL. The client parses the URL without the parameters of
// fencelock. It also reads the PG variables of the environment, password files and services.
type postgresTarget struct {
	pool   *pgxpool.Config
	engine pglock.Config
	limit  time.Duration // of the first connection
	secrets
}

// openPostgres connects once and returns the engine of the URL. Without that first connection, a
// request that waits would retry an unreachable server and report no error.
func openPostgres(ctx context.Context, u *url.URL, o options) (driver.Engine, func() error, error) {
	target, err := parsePostgres(u)
	if err != nil {
		return nil, nil, err
	}
	o.postgres(&target.pool.ConnConfig.Config)
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), target.pool) // the pool outlives ctx
	if err != nil {
		return nil, nil, errors.New(target.hide(err.Error()))
	}
	engine := &postgresEngine{pglock.New(pool, &target.engine), pool, target.engine}
	end := func() error { return closeBoth(engine.Close, pool.Close) }
	if err := target.pingServer(ctx, engine.Engine); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return engine, end, nil
}

// postgres makes the client connect by o.dial, if there is one, unless the server is a socket of this host.
func (o options) postgres(client *pgconn.Config) {
	if o.dial != nil && !strings.HasPrefix(client.Host, "/") {
		client.DialFunc = func(ctx context.Context, _, addr string) (net.Conn, error) { return o.dial(ctx, addr) }
	}
}

// Forcer is an engine that can also break a lock whose holder does not release it on request. The
// engine of a postgres:// URL is one.
type Forcer interface {
	// NamesOnSameSession returns the other names whose locks BreakByForce would end too.
	NamesOnSameSession(ctx context.Context, name string) ([]string, error)
	// BreakByForce is Break, and also ends the connections of holders that do not release.
	BreakByForce(ctx context.Context, name, reason string) (int64, error)
}

// postgresEngine is a Forcer.
type postgresEngine struct {
	*pglock.Engine
	pool *pgxpool.Pool
	cfg  pglock.Config
}

var _ Forcer = (*postgresEngine)(nil)

// BreakByForce breaks the lock, and ends the connections of holders that do not release it.
func (e *postgresEngine) BreakByForce(ctx context.Context, name, reason string) (int64, error) {
	cfg := e.cfg
	cfg.ForceBreak = true
	forced := pglock.New(e.pool, &cfg)
	token, err := forced.Break(ctx, name, reason)
	return token, errors.Join(err, forced.Close())
}

// parsePostgres parses a URL. It does not connect. It stores the passwords before the client parses
// the URL, so that they can be removed from the errors of the client. It stores the parameter
// password in two forms, since url.ParseQuery decodes a + to a space and the client does not.
func parsePostgres(u *url.URL) (*postgresTarget, error) {
	if u.Opaque != "" || u.Fragment != "" || strings.Contains(u.Path, "@") {
		return nil, errors.New("the URL cannot be understood")
	}
	q, err := parseQuery(u)
	if err != nil {
		return nil, err
	}
	password, _ := u.User.Password()
	p := &postgresTarget{limit: postgresPatience, engine: pglock.Config{
		AllowPooler:  q.only("pooler", "allow"),
		MaxTTL:       q.duration("max-ttl", ShortestTTL, "30s"),
		BreakWait:    q.duration("break-wait", 100*time.Millisecond, "30s"),
		MaxWaiters:   q.number("max-waiters", 1),
		Timeout:      q.duration("timeout", 100*time.Millisecond, "5s"),
		FailoverTime: q.duration("failover-time", time.Second, "5m"),
	}}
	for _, name := range []string{"max-ttl", "timeout"} {
		if d, err := time.ParseDuration(q.Get(name)); err == nil && d > longestTimeout {
			q.fail(name, fmt.Sprintf("PostgreSQL has no longer timeouts than %v; write a shorter duration", longestTimeout))
		}
	}
	p.keep(password)
	p.keep(q.Get("password"))
	p.keep(strings.ReplaceAll(q.Get("password"), " ", "+"))
	if q.err != nil {
		return nil, q.err
	}
	if p.pool, err = pgxpool.ParseConfig(without(u, postgresParameters)); err != nil {
		return nil, errors.New(p.reason(err))
	}
	p.keep(p.pool.ConnConfig.Password) // from a file or the environment
	p.setTimes(q.Values)
	return p, nil
}

// setTimes sets the timeouts of the first connection. As in libpq, connect_timeout applies to each
// host. Without it, the hosts get equal shares of the limit.
func (p *postgresTarget) setTimes(query url.Values) {
	conn := &p.pool.ConnConfig.Config
	hosts, last := time.Duration(1), conn.Host
	for _, f := range conn.Fallbacks { // a host may have several addresses
		if f.Host != last {
			hosts, last = hosts+1, f.Host
		}
	}
	if query.Has("connect_timeout") && conn.ConnectTimeout > 0 {
		p.limit = hosts*conn.ConnectTimeout + time.Second
		return
	}
	conn.ConnectTimeout = p.limit / hosts
}

// without removes parameters from the URL. It does not decode the others, since in PostgreSQL a + is
// not a space.
func without(u *url.URL, names []string) string {
	theirs := *u
	var rest []string
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		name, _, _ := strings.Cut(pair, "=")
		if !slices.Contains(names, name) {
			rest = append(rest, pair)
		}
	}
	theirs.RawQuery = strings.Join(rest, "&")
	return theirs.String()
}

// pingServer connects once, so that an error is reported before a request waits and retries.
func (p *postgresTarget) pingServer(ctx context.Context, engine *pglock.Engine) error {
	limited, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	err := engine.Ping(limited)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return p.refused(err)
}

// refused returns the error of a failed connection with a hint. The SQLSTATE 3D000 means that the
// database does not exist.
func (p *postgresTarget) refused(err error) error {
	hint := "check the user and the password in FENCELOCK_URL, and the server's pg_hba.conf"
	switch pg, _ := errors.AsType[*pgconn.PgError](err); {
	case pg == nil:
	case pg.Code == "3D000":
		hint = "check the name of the database in FENCELOCK_URL"
	case pg.Code == "42704" || pg.Code == "22023": // a parameter that the server does not know, or its value
		return &HintError{Err: fmt.Errorf("postgres: %s", p.hide(pg.Error())), Hint: "a parameter of the server, or one of " + strings.Join(postgresParameters, ", ")}
	}
	return p.explain(err, "postgres: ", hint)
}

// explain is explain for an error of the client.
func (p *postgresTarget) explain(err error, where, config string) error {
	kind := driver.ErrUnavailable
	if errors.Is(err, driver.ErrConfig) {
		kind = driver.ErrConfig
	}
	return explain(fmt.Errorf("%w: %s", kind, strings.TrimPrefix(p.reason(err), kind.Error()+": ")), p.secrets, where, config)
}

// reason returns the text of an error on one line, without the URL that the client puts between
// back quotes.
func (p *postgresTarget) reason(err error) string {
	text := err.Error()
	for _, kind := range []error{driver.ErrConfig, driver.ErrUnavailable} {
		text = strings.TrimPrefix(text, kind.Error()+": postgres: ")
	}
	if _, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		if i := strings.Index(text, "`: "); i >= 0 {
			text = "the URL cannot be used: " + text[i+len("`: "):]
		}
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		if i := strings.Index(text, "`:"); i >= 0 {
			text = uniqueLines(text[i+len("`:"):])
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		text += fmt.Sprintf(" (no answer within %v)", p.limit)
	}
	return p.hide(strings.Join(strings.Fields(text), " "))
}

// uniqueLines removes repeated lines. The client tries each host with and without TLS, often with the same
// error.
func uniqueLines(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// postgresPart returns the rows of the names with a prefix.
func postgresPart(u *url.URL, prefix string) (*Part, error) {
	given := u.String()
	target, err := parsePostgres(u)
	if err != nil {
		return nil, err
	}
	conn := target.pool.ConnConfig
	p := &Part{URL: given, Names: prefix, Hosts: []string{conn.Host}, Local: strings.HasPrefix(conn.Host, "/"), sweep: (&rows{postgresTarget: target, prefix: prefix}).sweep}
	for _, f := range conn.Fallbacks {
		p.Hosts = append(p.Hosts, f.Host)
	}
	return p, nil
}

// rows are the rows of names with a prefix in PostgreSQL.
type rows struct {
	*postgresTarget
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

func (r *rows) sweep(ctx context.Context, remove bool) (n int, err error) {
	conn, err := pgconn.ConnectConfig(ctx, &r.pool.ConnConfig.Config)
	if err != nil {
		return 0, fmt.Errorf("%w: postgres: %s", driver.ErrUnavailable, r.reason(err))
	}
	defer func() { _ = conn.Close(ctx) }()
	run := func(sql string) (found int) { // it does nothing after an error
		if err != nil {
			return 0
		}
		tag, failed := conn.ExecParams(ctx, sql, [][]byte{[]byte(r.prefix)}, nil, nil, nil).Close()
		err = failed
		return int(tag.RowsAffected())
	}
	exists, verb := run(anySchema) > 0, map[bool]string{false: "SELECT", true: "DELETE"}[remove]
	if exists {
		for _, table := range tables {
			n += run(verb + " FROM fencelock." + table + " WHERE starts_with(name, $1)")
		}
	}
	if exists && remove && r.made && err == nil {
		err = conn.Exec(ctx, dropUnused()).Close()
	}
	if err != nil {
		return n, fmt.Errorf("postgres: %s", r.reason(err))
	}
	r.made = r.made || !exists
	return n, nil
}
