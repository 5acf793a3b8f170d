//go:build unix

package engineurl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
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

// Postgres is a parsed URL of PostgreSQL. The client parses the URL without the parameters of
// fencelock. It also reads the PG variables of the environment, password files and services.
type Postgres struct {
	Pool   *pgxpool.Config
	engine pglock.Config
	limit  time.Duration // of the first connection
	secrets
}

// Open connects once and returns the engine. Without that first connection, a request that waits
// would retry an unreachable server and report no error.
func (p *Postgres) Open(ctx context.Context, _ *slog.Logger) (driver.Engine, func() error, error) {
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), p.Pool) // the pool outlives ctx
	if err != nil {
		return nil, nil, errors.New(p.Hide(err.Error()))
	}
	engine := &postgresEngine{pglock.New(pool, &p.engine), pool, p.engine}
	end := func() error { return closeBoth(engine.Close, pool.Close) }
	limited, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	err = engine.Ping(limited)
	switch {
	case err == nil:
		return engine, end, nil
	case ctx.Err() != nil:
		err = ctx.Err()
	default:
		err = p.refused(err)
	}
	return nil, nil, errors.Join(err, end())
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
func parsePostgres(u *url.URL) (*Postgres, error) {
	if u.Opaque != "" || u.Fragment != "" || strings.Contains(u.Path, "@") {
		return nil, errors.New("the URL cannot be understood")
	}
	q, err := parseQuery(u)
	if err != nil {
		return nil, err
	}
	password, _ := u.User.Password()
	p := &Postgres{limit: postgresPatience, engine: pglock.Config{
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
	if p.Pool, err = pgxpool.ParseConfig(without(u, postgresParameters)); err != nil {
		return nil, errors.New(p.Reason(err))
	}
	p.keep(p.Pool.ConnConfig.Password) // from a file or the environment
	p.setTimes(q.Values)
	return p, nil
}

// setTimes sets the timeouts of the first connection. As in libpq, connect_timeout applies to each
// host. Without it, the hosts get equal shares of the limit.
func (p *Postgres) setTimes(query url.Values) {
	conn := &p.Pool.ConnConfig.Config
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

// refused returns the error of a failed connection with a hint. The SQLSTATE 3D000 means that the
// database does not exist.
func (p *Postgres) refused(err error) error {
	hint := "check the user and the password in FENCELOCK_URL, and the server's pg_hba.conf"
	switch pg, _ := errors.AsType[*pgconn.PgError](err); {
	case pg == nil:
	case pg.Code == "3D000":
		hint = "check the name of the database in FENCELOCK_URL"
	case pg.Code == "42704" || pg.Code == "22023": // a parameter that the server does not know, or its value
		return &HintError{Err: fmt.Errorf("postgres: %s", p.Hide(pg.Error())), Hint: "a parameter of the server, or one of " + strings.Join(postgresParameters, ", ")}
	}
	return p.explain(err, "postgres: ", hint)
}

// explain is explain for an error of the client.
func (p *Postgres) explain(err error, where, config string) error {
	kind := driver.ErrUnavailable
	if errors.Is(err, driver.ErrConfig) {
		kind = driver.ErrConfig
	}
	return explain(fmt.Errorf("%w: %s", kind, strings.TrimPrefix(p.Reason(err), kind.Error()+": ")), p.secrets, where, config)
}

// Reason returns the text of an error on one line, without the URL that the client puts between
// back quotes.
func (p *Postgres) Reason(err error) string {
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
	return p.Hide(strings.Join(strings.Fields(text), " "))
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
