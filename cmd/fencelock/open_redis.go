//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock"
)

const (
	redisPort      = "6379"
	sentinelPort   = "26379"
	connectReserve = 1500 * time.Millisecond // what all attempts may take beside one timeout
	closeLimit     = 500 * time.Millisecond
	pingEvery      = 10 * time.Second       // the client's default is a second: a lot for idle waiters
	pipeBuffer     = 32 << 10               // the client's default is half a megabyte, twice a connection
	hidden         = "(password not shown)" // in place of a secret
)

// redisTarget is what a URL of Redis asks for.
type redisTarget struct {
	client  rueidis.ClientOption
	engine  redislock.Config
	cluster bool
	secrets []string
}

// openRedis connects to the server of a URL.
func openRedis(ctx context.Context, u *url.URL) (driver.Engine, func() error, error) {
	target, err := parseRedis(u)
	if err != nil {
		return nil, nil, err
	}
	client, err := target.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	engine := redislock.New(client, &target.engine)
	return engine, func() error { return closeBoth(engine.Close, client.Close) }, nil
}

// closeBoth closes an engine and its client, which both wait for what is under way.
// A silent server must not keep the program from its end.
func closeBoth(closeEngine func() error, closeClient func()) error {
	closed := make(chan error, 1)
	go func() { // ends when the client's timeouts are over, or with the process
		err := closeEngine()
		closeClient()
		closed <- err
	}()
	select {
	case err := <-closed:
		return err
	case <-time.After(closeLimit):
		return nil
	}
}

// connect dials, for a limited time: the client's own dialling takes no context.
func (r *redisTarget) connect(ctx context.Context) (rueidis.Client, error) {
	limit := r.client.Dialer.Timeout + connectReserve
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	type dialled struct {
		client rueidis.Client
		err    error
	}
	done := make(chan dialled, 1)
	go func() { // ends when the client gives up, soon after its timeout
		client, err := rueidis.NewClient(r.client)
		if err == nil && ctx.Err() != nil {
			client.Close()
		}
		done <- dialled{client, err}
	}()
	select {
	case d := <-done:
		return r.check(d.client, d.err)
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, ctx.Err()
		}
		return nil, r.unreachable(context.Cause(ctx))
	}
}

// check refuses a single server where a cluster was asked for.
func (r *redisTarget) check(client rueidis.Client, err error) (rueidis.Client, error) {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, r.unreachable(fmt.Errorf("no answer within %v", r.client.Dialer.Timeout))
	case err != nil:
		return nil, r.unreachable(err)
	}
	if r.cluster && client.Mode() != rueidis.ClientModeCluster {
		client.Close()
		return nil, fmt.Errorf("%s is not a cluster; write redis://", strings.Join(r.client.InitAddress, ","))
	}
	return client, nil
}

// unreachable says in the client's words why there is no connection, and what to
// do.
func (r *redisTarget) unreachable(err error) error {
	kind, text, hint := driver.ErrUnavailable, r.hide(err), "check --url or FENCELOCK_URL, and that the server is up"
	if refused, ok := rueidis.IsRedisErr(err); ok && (redislock.ServerError{Text: refused.Error()}).Denied() {
		kind, hint = driver.ErrConfig, "check the user and the password in FENCELOCK_URL"
	}
	return &hintedError{
		fmt.Errorf("%w: redis at %s: %s", kind, strings.Join(r.client.InitAddress, ","), text), hint,
	}
}

// hide takes the passwords out of what the client says.
func (r *redisTarget) hide(err error) string { return hide(err.Error(), r.secrets) }

// hide takes secrets out of a text.
func hide(text string, secrets []string) string {
	for _, s := range secrets {
		text = strings.ReplaceAll(text, s, hidden)
	}
	return text
}

// parseRedis reads a URL. It connects to nothing.
func parseRedis(u *url.URL) (*redisTarget, error) {
	query, err := parameters(u, redisParameters(u.Scheme)...)
	if err != nil {
		return nil, err
	}
	r, err := newRedisTarget(u)
	if err != nil {
		return nil, err
	}
	place := map[string]func(*url.URL, url.Values) error{
		"redis": r.single, "rediss": r.single, "redis+unix": r.socket, "redis+sentinel": r.sentinel, "redis+cluster": r.clustered,
	}[u.Scheme]
	if err := place(u, query); err != nil {
		return nil, fmt.Errorf("%s: %w", u.Scheme, err)
	}
	for _, set := range []func(*url.URL, url.Values) error{r.setTimes, r.setEngine, r.setTLS} {
		if err := set(u, query); err != nil {
			return nil, fmt.Errorf("%s: %w", u.Scheme, err)
		}
	}
	return r, nil
}

// newRedisTarget is what every URL of Redis asks for: who we are.
func newRedisTarget(u *url.URL) (*redisTarget, error) {
	if u.Opaque != "" || u.Fragment != "" || strings.Contains(u.Path, "@") {
		return nil, fmt.Errorf("%s: the URL cannot be understood; write %s://host:port, and special characters as %%XX", u.Scheme, u.Scheme)
	}
	r := &redisTarget{client: rueidis.ClientOption{
		ClientName:          "fencelock",
		DisableCache:        true,
		RingScaleEachConn:   8,
		ReadBufferEachConn:  pipeBuffer,
		WriteBufferEachConn: pipeBuffer,
		ForceSingleClient:   true,
	}}
	if u.User != nil {
		r.client.Username = u.User.Username()
		r.client.Password, _ = u.User.Password()
		r.keepSecret(r.client.Password)
		if r.client.Password == "" && r.client.Username != "" {
			return nil, fmt.Errorf("%s: the URL names a user and no password; write user:password@, or :password@ for the default user", u.Scheme)
		}
	}
	return r, nil
}

func (r *redisTarget) keepSecret(s string) {
	if s != "" {
		r.secrets = append(r.secrets, s)
	}
}

// single is one server: host:port/db.
func (r *redisTarget) single(u *url.URL, _ url.Values) error {
	addrs, err := addresses(u.Host, redisPort)
	if err != nil {
		return err
	}
	if len(addrs) > 1 {
		return errors.New("one server has one address; several belong to redis+sentinel:// or redis+cluster://")
	}
	r.client.InitAddress = addrs
	r.client.SelectDB, err = database(strings.TrimPrefix(u.Path, "/"))
	return err
}

// socket is one server behind a Unix socket: /path?db=N.
func (r *redisTarget) socket(u *url.URL, query url.Values) (err error) {
	if u.Host != "" || len(u.Path) < 2 {
		return errors.New("write the absolute path of the socket: redis+unix:///run/redis.sock")
	}
	path := u.Path
	r.client.InitAddress = []string{path}
	r.client.DialCtxFn = unixDialer(path)
	r.client.SelectDB, err = database(query.Get("db"))
	return err
}

// sentinel is a master that Sentinels know: h1:p,h2:p/master/db.
func (r *redisTarget) sentinel(u *url.URL, query url.Values) error {
	addrs, err := addresses(u.Host, sentinelPort)
	if err != nil {
		return err
	}
	master, db, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if master == "" {
		return errors.New("the URL names no master; write redis+sentinel://h1,h2,h3/mymaster")
	}
	r.client.InitAddress = addrs
	r.client.ForceSingleClient = false
	r.client.Sentinel = rueidis.SentinelOption{
		MasterSet: master, ClientName: r.client.ClientName,
		Username: query.Get("sentinel-user"), Password: query.Get("sentinel-password"),
		TopologyRefreshInterval: 5 * time.Second,
	}
	r.keepSecret(r.client.Sentinel.Password)
	r.client.SelectDB, err = database(db)
	return err
}

// clustered is a Redis Cluster: some of its nodes.
func (r *redisTarget) clustered(u *url.URL, _ url.Values) (err error) {
	if strings.Trim(u.Path, "/") != "" {
		return errors.New("a cluster has no database numbers; leave out what follows the hosts")
	}
	r.cluster, r.client.ForceSingleClient = true, false
	r.client.InitAddress, err = addresses(u.Host, redisPort)
	return err
}

// addresses reads h1:p,h2:p.
func addresses(hosts, port string) ([]string, error) {
	var addrs []string
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := address(host, port)
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// address completes host or host:port. Its error does not repeat what may be a
// piece of a password.
func address(host, port string) (string, error) {
	u := url.URL{Host: host}
	name := u.Hostname()
	port = cmp.Or(u.Port(), port)
	n, err := strconv.Atoi(port)
	switch {
	case name == "" || strings.HasSuffix(host, ":") || strings.Contains(name, ":") && !strings.HasPrefix(host, "["):
		return "", errors.New("the URL names no host, or an empty one; write host:port, and special characters of a password as %XX")
	case err != nil || n < 1 || n > 65535:
		return "", errors.New("a port of the URL is not between 1 and 65535")
	}
	return net.JoinHostPort(name, port), nil
}
