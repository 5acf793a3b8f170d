package pglock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fencelock/fencelock/pglock/internal/pipe"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The limits of one attempt to connect to a server and check it, which are divided among the hosts: how
// long it may take, and how long the server may say nothing. The latter is shorter than the default of
// Config.Timeout, so that calls can say why there is no connection.
const (
	dialLimit  = 10 * time.Second
	quietLimit = 4 * time.Second
)

// dialer opens connections and lists the open sessions. Its functions must be set before it is
// used.
type dialer struct {
	pool *pgxpool.Pool
	cfg  Config

	patience patience

	onNotice func(payload string)      // called for each notification; must not block
	onTick   func(*session, time.Time) // called regularly, to end locks that were not renewed
	onEnd    func(*session)            // called once when a session has ended, to end its locks
	isFree   func(*session) bool       // reports whether a session has no locks

	closed context.Context // ends with shut
	close  context.CancelFunc

	mu       sync.Mutex // guards all below
	sessions map[*session]struct{}
	primary  string    // the host that served last, which is asked first; "" before any has
	refusing time.Time // every host refuses since then; zero if one has served, or not answered
	pooled   bool      // there is a pooler, which keeps each client on a server connection
}

// dial opens a session whose leases last for ttl, and checks everything they depend on before
// anything is locked. With a ttl of 0 the session holds no locks. The error is a *dialError if no
// host of the DSN can be used.
func (d *dialer) dial(ctx context.Context, ttl time.Duration, waiter bool) (s *session, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.closed, cancel)()
	if d.closed.Err() != nil {
		return nil, errEngineClosed
	}
	err = d.eachHost(ctx, func(ctx context.Context, c *pgconn.PgConn, host string) error {
		s, err = d.newSession(ctx, c, host, ttl, waiter)
		return err
	})
	switch {
	case err == nil:
		d.served(s.host)
	case d.closed.Err() != nil: // the server may be down, which is worth a retry, unlike this
		err = errEngineClosed
	}
	return s, err
}

// newSession turns a connection into a session, or closes it.
func (d *dialer) newSession(ctx context.Context, c *pgconn.PgConn, host string, ttl time.Duration, waiter bool) (*session, error) {
	s := &session{dialer: d, ttl: ttl, waiter: waiter, holds: map[*hold]struct{}{}, fn: functions{}, host: host}
	take := func(_ context.Context, c *pgconn.PgConn) (err error) {
		s.Conn, err = pipe.New(c, d.onNotice)
		return err
	}
	for _, step := range []func(context.Context, *pgconn.PgConn) error{s.check, s.set, complete, s.learn, s.enter, take} {
		if err := step(ctx, c); err != nil {
			_ = c.Close(ctx) // the step's error is reported
			return nil, err
		}
	}
	s.shared = sharedKeys{conn: s.Conn, count: map[int64]int{}, leaving: map[int64]chan struct{}{}}
	if err := d.enlist(s); err != nil {
		s.Close(err)
		return nil, err
	}
	go s.watch() // ends with the connection
	return s, nil
}

// eachHost connects to the hosts of the DSN in turn until use accepts one, starting with the host
// that served last. use owns the connection, even if it returns an error.
func (d *dialer) eachHost(ctx context.Context, use func(ctx context.Context, c *pgconn.PgConn, host string) error) error {
	if err := d.cfg.check(); err != nil {
		return &dialError{err, true}
	}
	all, err := d.hosts(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for i, cfg := range all {
		err := func() error {
			limited, cancel := context.WithTimeout(ctx, dialLimit/time.Duration(len(all)))
			defer cancel()
			responsive, stop := d.patience.limit(limited, quietLimit/time.Duration(len(all)))
			defer stop()
			c, err := pgconn.ConnectConfig(responsive, cfg)
			if err == nil {
				err = use(responsive, c, address(cfg))
			}
			if err != nil && responsive.Err() != nil && ctx.Err() == nil {
				err = fmt.Errorf("%w: %w", errSilent, err)
			}
			return err
		}()
		if err == nil {
			return nil
		}
		if errors.Is(err, errEngineClosed) {
			return err
		}
		if errs = append(errs, explain(err)); len(all) > 1 {
			errs[i] = fmt.Errorf("%s: %w", address(cfg), errs[i])
		}
	}
	return d.unserved(errs)
}

// connect opens another connection to one of the hosts.
func (d *dialer) connect(ctx context.Context, host string) (*pgconn.PgConn, error) {
	all, err := d.hosts(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(cfg *pgconn.Config) bool { return address(cfg) == host })
	if i < 0 {
		return nil, fmt.Errorf("the host %s is no longer in the configuration of the pool", host)
	}
	return pgconn.ConnectConfig(ctx, all[i])
}

// probe connects to a host. If its server answers, only a connection is silent, and calls may wait longer.
func (d *dialer) probe(host string) {
	ctx, cancel := context.WithTimeout(d.closed, d.cfg.Timeout)
	defer cancel()
	if c, err := d.connect(ctx, host); err == nil {
		_ = c.Close(ctx) // the server has answered
	}
}

// hosts returns the configuration of a connection for each host of the DSN, as the application's
// pool would connect to it. BeforeConnect runs each time, because it may move the connection to
// another server.
func (d *dialer) hosts(ctx context.Context) ([]*pgconn.Config, error) {
	pool := d.pool.Config()
	if pool.BeforeConnect != nil {
		if err := pool.BeforeConnect(ctx, pool.ConnConfig); err != nil {
			return nil, err
		}
	}
	cfg := pool.ConnConfig.Config.Copy()
	cfg.OnNotice, cfg.OnNotification, cfg.AfterConnect = warned, nil, nil
	cfg.RuntimeParams["client_encoding"] = "UTF8"
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "fencelock"
	}
	dial := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return receivingConn{c, &d.patience}, nil
	}
	all := split(cfg)
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, h := range all {
		if address(h) == d.primary {
			return slices.Concat(all[i:], all[:i]), nil
		}
	}
	return all, nil
}

// split returns one configuration per host. A host may have several ways to connect, such as with
// and without TLS.
func split(cfg *pgconn.Config) (all []*pgconn.Config) {
	ways := append([]*pgconn.FallbackConfig{{Host: cfg.Host, Port: cfg.Port, TLSConfig: cfg.TLSConfig}}, cfg.Fallbacks...)
	for i, w := range ways {
		if i > 0 && w.Host == ways[i-1].Host && w.Port == ways[i-1].Port {
			last := all[len(all)-1]
			last.Fallbacks = append(last.Fallbacks, w)
			continue
		}
		one := cfg.Copy()
		one.Host, one.Port, one.TLSConfig, one.Fallbacks = w.Host, w.Port, w.TLSConfig, nil
		all = append(all, one)
	}
	return all
}

// address returns the address of a configuration's host.
func address(cfg *pgconn.Config) string {
	return net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))
}

// dialError is why no host of the DSN can be used.
type dialError struct {
	err   error
	final bool // a retry does not help until the setup is corrected
}

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// served records the host of the current primary.
func (d *dialer) served(host string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.primary, d.refusing = host, time.Time{}
}

// unserved combines the errors of all hosts. If every host refuses, the error is final, but not
// during a failover: once a host has served, a host that refuses may be a standby about to be
// promoted or a demoted primary, so refusals become final only after FailoverTime. A host that does
// not answer may be the primary.
func (d *dialer) unserved(errs []error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case slices.ContainsFunc(errs, func(err error) bool { return !refusing(err) }):
		d.refusing = time.Time{}
	case d.refusing.IsZero():
		d.refusing = time.Now()
	}
	err := errs[0]
	for _, next := range errs[1:] {
		err = fmt.Errorf("%w; %w", err, next)
	}
	final := !d.refusing.IsZero() && (d.primary == "" || time.Since(d.refusing) > d.cfg.FailoverTime) || errors.Is(err, errShared)
	return &dialError{err, final}
}

// refusing reports whether an error means that a host refuses the engine as it is configured.
func refusing(err error) bool {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.config
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains(misconfigured, pg.Code)
}

// errShared is the sign of a pooler that shares server connections.
var errShared = errors.New("two connections use the same server process")

// sharedConnections returns the error of a pooler that shares server connections.
func sharedConnections() error {
	return refuse("%w: the pooler is not in session mode; "+inRows+", or use session pooling", errShared)
}

// errEngineClosed is returned for requests to a closed engine.
var errEngineClosed = deny("the engine is closed")

// enlist adds a session to the list. It rejects a session that has the server process of another
// one: a pooler in transaction mode has reused it.
func (d *dialer) enlist(s *session) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Err() != nil {
		return errEngineClosed
	}
	for o := range d.sessions {
		if o.host == s.host && o.backend == s.backend && o.Err() == nil {
			go o.Kill(errShared) // the settings of the other session may have been changed
			return sharedConnections()
		}
	}
	d.sessions[s] = struct{}{}
	return nil
}

// forget removes an ended session from the list and ends its locks.
func (d *dialer) forget(s *session) {
	d.mu.Lock()
	delete(d.sessions, s)
	d.mu.Unlock()
	d.onEnd(s)
}

// shut refuses further sessions, and returns the open ones.
func (d *dialer) shut() []*session {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.close()
	return slices.Collect(maps.Keys(d.sessions))
}
