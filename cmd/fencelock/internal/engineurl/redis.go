//go:build unix

package engineurl

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock"
)

// redisTarget is what a URL of Redis asks for.
type redisTarget struct {
	redisClient
	engine  redislock.Config
	cluster bool // a single server is refused
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
	// The client finds out by itself that a server is part of a cluster. One that is not
	// would hold all locks alone, without the failover that the URL speaks of.
	if target.cluster && client.Mode() != rueidis.ClientModeCluster {
		client.Close()
		return nil, nil, fmt.Errorf("%s is not a cluster; write redis://", strings.Join(target.option.InitAddress, ","))
	}
	engine := redislock.New(client, &target.engine)
	return engine, func() error { return closeBoth(engine.Close, client.Close) }, nil
}

// redisParameters is what the URLs of a scheme may say after the question mark. insecure
// is known only to be refused with a reason.
func redisParameters(scheme string) []string {
	known := []string{"quarantine", "max-ttl", "eviction", "min-replicas", "replica-lag", "marker-life", "retention", "prefix", "timeout", "insecure"}
	switch scheme {
	case "rediss":
		known = append(known, "ca", "cert", "key")
	case "redis+unix":
		known = append(known, "db")
	case "redis+cluster":
		known = append(known, "tls", "ca", "cert", "key")
	case "redis+sentinel":
		known = append(known, "tls", "ca", "cert", "key", "sentinel-user", "sentinel-password")
	}
	return known
}

// parseRedis reads a URL. It connects to nothing.
func parseRedis(u *url.URL) (*redisTarget, error) {
	query, err := parameters(u, redisParameters(u.Scheme)...)
	if err != nil {
		return nil, err
	}
	client, err := newRedisClient(u)
	if err != nil {
		return nil, err
	}
	r := &redisTarget{redisClient: client}
	// What follows the scheme is read first: quarantine must know whether this is a cluster.
	place := map[string]func(*url.URL, url.Values) error{
		"redis": r.single, "rediss": r.single, "redis+unix": r.socket, "redis+sentinel": r.sentinel, "redis+cluster": r.clustered,
	}[u.Scheme]
	for _, set := range []func(*url.URL, url.Values) error{place, r.setTimes, r.setEngine, r.setTLS} {
		if err := set(u, query); err != nil {
			return nil, fmt.Errorf("%s: %w", u.Scheme, err)
		}
	}
	return r, nil
}

// single is one server: host:port/db. A list of hosts could be meant in two ways, so it
// is refused.
func (r *redisTarget) single(u *url.URL, _ url.Values) error {
	addrs, err := addresses(u.Host, redisPort)
	if err != nil {
		return err
	}
	if len(addrs) > 1 {
		return errors.New("one server has one address; several belong to redis+sentinel:// or redis+cluster://")
	}
	r.option.InitAddress = addrs
	r.option.SelectDB, err = database(strings.TrimPrefix(u.Path, "/"))
	return err
}

// socket is one server behind a Unix socket: /path?db=N. The path of the URL is the
// socket's, so the database is a parameter.
func (r *redisTarget) socket(u *url.URL, query url.Values) (err error) {
	if u.Host != "" || len(u.Path) < 2 {
		return errors.New("write the absolute path of the socket: redis+unix:///run/redis.sock")
	}
	path := u.Path
	r.option.InitAddress = []string{path}
	r.option.DialCtxFn = unixDialer(path)
	r.option.SelectDB, err = database(query.Get("db"))
	return err
}

// unixDialer dials a socket, whatever address the client thinks of.
func unixDialer(path string) func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	return func(ctx context.Context, _ string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return dialer.DialContext(ctx, "unix", path)
	}
}

// sentinel is a master that Sentinels know: h1:p,h2:p/master/db. The user and password of
// the URL are the master's; the Sentinels have their own.
func (r *redisTarget) sentinel(u *url.URL, query url.Values) error {
	addrs, err := addresses(u.Host, sentinelPort)
	if err != nil {
		return err
	}
	master, db, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if master == "" {
		return errors.New("the URL names no master; write redis+sentinel://h1,h2,h3/mymaster")
	}
	r.option.InitAddress = addrs
	r.option.ForceSingleClient = false
	r.option.Sentinel = rueidis.SentinelOption{
		MasterSet: master, ClientName: r.option.ClientName,
		Username: query.Get("sentinel-user"), Password: query.Get("sentinel-password"),
		// A message of a failover may be lost; the Sentinels are asked besides.
		TopologyRefreshInterval: 5 * time.Second,
	}
	r.keep(r.option.Sentinel.Password)
	r.option.SelectDB, err = database(db)
	return err
}

// clustered is a Redis Cluster: some of its nodes, from which the client learns the rest.
func (r *redisTarget) clustered(u *url.URL, _ url.Values) (err error) {
	if strings.Trim(u.Path, "/") != "" {
		return errors.New("a cluster has no database numbers; leave out what follows the hosts")
	}
	r.cluster, r.option.ForceSingleClient = true, false
	r.option.InitAddress, err = addresses(u.Host, redisPort)
	return err
}

// setEngine reads what concerns the locks.
func (r *redisTarget) setEngine(_ *url.URL, query url.Values) (err error) {
	r.engine.Prefix = query.Get("prefix")
	r.engine.Quarantine, err = word(query, "quarantine", "on")
	if err == nil && r.engine.Quarantine && r.cluster {
		err = errors.New("quarantine=on is not available on a cluster; use redis+sentinel://, or guard the data with fencing tokens")
	}
	var evict, few error
	r.engine.AllowEviction, evict = word(query, "eviction", "allow")
	long := r.setSpans(query)
	r.engine.MinReplicas, few = count(query, "min-replicas", 0, "a number of replicas, such as 1")
	return cmp.Or(err, evict, long, few)
}

// setSpans reads the times of the engine. Some belong to the quarantine: without it
// they would look like a protection that is not there.
func (r *redisTarget) setSpans(query url.Values) (err error) {
	for _, p := range []struct {
		name       string
		to         *time.Duration
		shortest   time.Duration
		quarantine bool   // it means nothing without
		expected   string // what to write
	}{
		{"max-ttl", &r.engine.MaxTTL, shortestTTL, true, ttlExpected},
		{"replica-lag", &r.engine.ReplicaLag, time.Second, true, "the servers' min-replicas-max-lag, such as 10s"},
		{"marker-life", &r.engine.MarkerLife, time.Minute, true, "a time of at least 1m, such as 2160h"},
		{"retention", &r.engine.Retention, time.Minute, false, "a time of at least 1m, such as 1h"},
	} {
		if query.Has(p.name) && p.quarantine && !r.engine.Quarantine {
			return fmt.Errorf("%s means something with quarantine=on only; leave it out", p.name)
		}
		if *p.to, err = span(query, p.name, p.shortest, p.expected); err != nil {
			return err
		}
	}
	return nil
}
