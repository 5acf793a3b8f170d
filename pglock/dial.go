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

// dialLimit bounds one attempt to connect and to check the server. Each host has its share.
const dialLimit = 10 * time.Second

// dialer opens connections, and knows the sessions that live. Its functions are set before
// it is used.
type dialer struct {
	pool *pgxpool.Pool
	cfg  Config

	onNotice func(payload string)      // called for each notification; must not block
	onTick   func(*session, time.Time) // called now and then, to end the locks that nobody renewed
	onEnd    func(*session)            // called once when a session has ended, to end its locks
	isFree   func(*session) bool       // reports whether a session has no locks

	mu       sync.Mutex // guards all below
	done     bool       // shut was called
	sessions map[*session]struct{}
	primary  string    // the host that served last, which is asked first; "" before any has
	refusing time.Time // every host refuses since then; zero if one has served, or not answered
}

// dial opens a session whose leases run for ttl, and checks all that the leases
// rest on before anything is locked. A ttl of 0 makes a session that holds no locks.
// It is a *dialError if no host of the DSN serves.
func (d *dialer) dial(ctx context.Context, ttl time.Duration, waiter bool) (s *session, err error) {
	err = d.eachHost(ctx, func(ctx context.Context, c *pgconn.PgConn, host string) error {
		s, err = d.newSession(ctx, c, host, ttl, waiter)
		return err
	})
	if err == nil {
		d.served(s.host)
	}
	return s, err
}

// newSession makes a session of a connection, or closes it.
func (d *dialer) newSession(ctx context.Context, c *pgconn.PgConn, host string, ttl time.Duration, waiter bool) (*session, error) {
	s := &session{dialer: d, ttl: ttl, waiter: waiter, holds: map[*hold]struct{}{}, fn: functions{}, host: host}
	take := func(_ context.Context, c *pgconn.PgConn) (err error) {
		s.Conn, err = pipe.New(c, d.onNotice)
		return err
	}
	for _, step := range []func(context.Context, *pgconn.PgConn) error{s.check, s.set, complete, s.learn, s.enter, take} {
		if err := step(ctx, c); err != nil {
			_ = c.Close(ctx) // it is not needed any more
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

// eachHost connects to the hosts of the DSN one after the other until use accepts one; it
// begins with the one that served last. use is the owner of the connection, also when it returns an error.
func (d *dialer) eachHost(ctx context.Context, use func(ctx context.Context, c *pgconn.PgConn, host string) error) error {
	all, err := d.hosts(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for i, cfg := range all {
		err := func() error {
			limited, cancel := context.WithTimeout(ctx, dialLimit/time.Duration(len(all)))
			defer cancel()
			c, err := pgconn.ConnectConfig(limited, cfg)
			if err == nil {
				err = use(limited, c, address(cfg))
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

// hosts returns the configuration of a connection for each host of the DSN, as the
// application's pool would connect to it. The DSN is read anew each time: an administrator
// may have moved a name to another server.
func (d *dialer) hosts(ctx context.Context) ([]*pgconn.Config, error) {
	pool := d.pool.Config()
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

// split makes a configuration for each host. A host may have several ways in, such as with
// TLS and without.
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

// address names the host of a configuration.
func address(cfg *pgconn.Config) string {
	return net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))
}

// dialError is why no host of the DSN serves.
type dialError struct {
	err   error
	final bool // a person must mend it; otherwise another try may succeed
}

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// served notes that a host is a primary that serves.
func (d *dialer) served(host string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.primary, d.refusing = host, time.Time{}
}

// unserved makes an error of those of all hosts. Before any host has served, and when all of
// them have refused for longer than a failover may take, refusals are final. Meanwhile a host
// that refuses may be a standby that is about to be promoted, or a primary that was put out of
// service, and one that does not answer may be the primary.
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

// refusing reports whether an error says that a host refuses us as it is set up.
func refusing(err error) bool {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.config
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains(misconfigured, pg.Code)
}

// errShared is what a pooler that shares server connections looks like.
var errShared = errors.New("two connections ended up in one server process")

// errEngineClosed is what requests to an engine that was closed get.
var errEngineClosed = deny("the engine is closed")

// enlist makes a session known to the engine, and refuses one that has the server
// process of another: a pooler in transaction mode gave it away.
func (d *dialer) enlist(s *session) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done {
		return errEngineClosed
	}
	for o := range d.sessions {
		if o.host == s.host && o.backend == s.backend && o.Err() == nil {
			go o.Kill(errShared) // who knows what the other one did to its settings
			return refuse("%w: the pooler is not in session mode; use session pooling, or connect to the server directly", errShared)
		}
	}
	d.sessions[s] = struct{}{}
	return nil
}

// forget takes a session that has ended off the list, and has its locks ended.
func (d *dialer) forget(s *session) {
	d.mu.Lock()
	delete(d.sessions, s)
	d.mu.Unlock()
	d.onEnd(s)
}

// shut refuses further sessions, and returns those that there are.
func (d *dialer) shut() []*session {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done = true
	return slices.Collect(maps.Keys(d.sessions))
}
