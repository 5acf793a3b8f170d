//go:build unix

package engineurl

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/pglock"
)

// postgresPatience bounds the first connection, unless the URL has a
// connect_timeout of its own.
const postgresPatience = 4 * time.Second

// postgresParameters are ours; every other one is the client's or the server's.
var postgresParameters = []string{"pooler", "max-ttl", "max-waiters", "break-wait", "timeout", "failover-time"}

// postgresTarget is what a URL of PostgreSQL asks for. The client reads the URL by
// itself, with the PG variables of the environment, password files and services; we take
// out what is ours before.
type postgresTarget struct {
	pool   *pgxpool.Config
	engine pglock.Config
	limit  time.Duration // of the first connection
	secrets
}

// openPostgres makes the engine of a URL, once the server has let us in: an
// engine that waits would go on trying.
func openPostgres(ctx context.Context, u *url.URL) (driver.Engine, func() error, error) {
	target, err := parsePostgres(u)
	if err != nil {
		return nil, nil, err
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), target.pool) // which ctx does not outlive
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

// Forcer is an engine whose Break asks holders first, and that can be told not to stop
// there. The engine of a postgres:// URL is one.
type Forcer interface {
	// NamesOnSameSession returns the other names that force would take away as well.
	NamesOnSameSession(ctx context.Context, name string) ([]string, error)
	// BreakByForce is Break that ends the connections of holders that do not let go.
	BreakByForce(ctx context.Context, name, reason string) (int64, error)
}

// postgresEngine can be told to use force after it was made.
type postgresEngine struct {
	*pglock.Engine
	pool *pgxpool.Pool
	cfg  pglock.Config
}

var _ Forcer = (*postgresEngine)(nil)

// BreakByForce ends the connections of holders that do not let go.
func (e *postgresEngine) BreakByForce(ctx context.Context, name, reason string) (int64, error) {
	cfg := e.cfg
	cfg.ForceBreak = true
	forced := pglock.New(e.pool, &cfg)
	token, err := forced.Break(ctx, name, reason)
	return token, errors.Join(err, forced.Close())
}

// parsePostgres reads a URL. It connects to nothing. Passwords are kept before anything is
// refused, so that no error shows them; the client knows a + in a password as itself, and
// url.ParseQuery as a space.
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
		MaxTTL:       q.duration("max-ttl", shortestTTL, "30s"),
		BreakWait:    q.duration("break-wait", 100*time.Millisecond, "30s"),
		MaxWaiters:   q.number("max-waiters", 1),
		Timeout:      q.duration("timeout", 100*time.Millisecond, "5s"),
		FailoverTime: q.duration("failover-time", time.Second, "5m"),
	}}
	p.keep(password)
	p.keep(q.Get("password"))
	p.keep(strings.ReplaceAll(q.Get("password"), " ", "+"))
	if q.err != nil {
		return nil, q.err
	}
	if p.pool, err = pgxpool.ParseConfig(withoutOurs(u)); err != nil {
		return nil, errors.New(p.reason(err))
	}
	p.keep(p.pool.ConnConfig.Password) // of a file or the environment
	p.setTimes(q.Values)
	return p, nil
}

// setTimes bounds the attempts to connect, each host having its share. A connect_timeout
// is for one host, as libpq has it.
func (p *postgresTarget) setTimes(query url.Values) {
	conn := &p.pool.ConnConfig.Config
	hosts, last := time.Duration(1), conn.Host
	for _, f := range conn.Fallbacks { // a host may have several ways in
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

// withoutOurs is the URL as the client may see it. What is left of the parameters
// stays as it was written: to PostgreSQL a + is no space.
func withoutOurs(u *url.URL) string {
	theirs := *u
	var rest []string
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		name, _, _ := strings.Cut(pair, "=")
		if !slices.Contains(postgresParameters, name) {
			rest = append(rest, pair)
		}
	}
	theirs.RawQuery = strings.Join(rest, "&")
	return theirs.String()
}

// pingServer connects once and hangs up, to learn at once what is wrong: a request that waits
// would try again until it can.
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

// refused says in the server's words why there is no connection, and what to do. Class
// 28 is a login that is refused, 3D000 a database that does not exist.
func (p *postgresTarget) refused(err error) error {
	kind, hint, config := driver.ErrUnavailable, hintUnreachable, errors.Is(err, driver.ErrConfig)
	if config {
		kind, hint = driver.ErrConfig, "check the user and the password in FENCELOCK_URL, and the server's pg_hba.conf"
	}
	switch pg, _ := errors.AsType[*pgconn.PgError](err); {
	case pg == nil:
	case config && pg.Code == "3D000":
		hint = "check the name of the database in FENCELOCK_URL"
	case pg.Code == "42704" || pg.Code == "22023": // a parameter that the server does not know, or its value
		return &HintError{Err: fmt.Errorf("postgres: %s", p.hide(pg.Error())), Hint: "a parameter of the server, or one of " + strings.Join(postgresParameters, ", ")}
	}
	return &HintError{Err: fmt.Errorf("%w: postgres: %s", kind, p.reason(err)), Hint: hint}
}

// reason is what the client says, in one line, without the URL it repeats, which stands
// between backquotes.
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
			text = once(text[i+len("`:"):])
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		text += fmt.Sprintf(" (no answer within %v)", p.limit)
	}
	return p.hide(strings.Join(strings.Fields(text), " "))
}

// once leaves out lines that were there before: the same host is tried with TLS and
// without.
func once(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}
