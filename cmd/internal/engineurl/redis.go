//go:build unix

package engineurl

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock"
)

// Redis is a parsed URL of Redis, alone, with Sentinels, or of a cluster.
type Redis struct {
	RedisClient
	Engine  redislock.Config
	Cluster bool // the server must be a cluster
}

// Open connects to the server.
func (r *Redis) Open(ctx context.Context, log *slog.Logger) (driver.Engine, func() error, error) {
	client, err := r.Connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	// The client detects a cluster by itself. A single server would hold all locks without the
	// failover that the URL promises.
	if r.Cluster && client.Mode() != rueidis.ClientModeCluster {
		client.Close()
		return nil, nil, schemeOf("redis+cluster").explain(fmt.Errorf("%s is not a cluster; write redis://", strings.Join(r.Option.InitAddress, ",")))
	}
	r.Engine.Logger = log
	engine := redislock.New(client, &r.Engine)
	return engine, func() error { return closeBoth(engine.Close, client.Close) }, nil
}

// redisParameters are the parameters of every scheme, and redisExtras those of some.
var (
	redisParameters = []string{"quarantine", "max-ttl", "eviction", "min-replicas", "replica-lag", "marker-life", "retention", "prefix", "timeout"}
	redisExtras     = map[string][]string{
		"rediss":         {"ca", "cert", "key"},
		"redis+unix":     {"db"},
		"redis+cluster":  {"tls", "ca", "cert", "key"},
		"redis+sentinel": {"tls", "ca", "cert", "key", "sentinel-user", "sentinel-password"},
	}
)

// parseRedis reads a URL. It connects to nothing.
func parseRedis(u *url.URL) (*Redis, error) {
	q, err := parseKnown(u, slices.Concat(redisParameters, redisExtras[u.Scheme])...)
	if err != nil {
		return nil, err
	}
	client, err := newRedisClient(u, q)
	if err != nil {
		return nil, err
	}
	r := &Redis{RedisClient: client}
	switch u.Scheme {
	case "redis+unix":
		err = r.socket(u, q)
	case "redis+sentinel":
		err = r.sentinel(u, q)
	case "redis+cluster":
		err = r.clustered(u)
	default:
		err = r.single(u)
	}
	r.setEngine(q)
	return r, cmp.Or(err, q.err)
}

// single is one server: host:port/db. A list of hosts would be ambiguous, so it is refused.
func (r *Redis) single(u *url.URL) error {
	addrs, err := addresses(u.Host, redisPort)
	if err != nil {
		return err
	}
	if len(addrs) > 1 {
		return errors.New("one server has one address; write several with redis+sentinel:// or redis+cluster://")
	}
	r.Option.InitAddress = addrs
	r.Option.SelectDB, err = database(strings.TrimPrefix(u.Path, "/"))
	return err
}

// socket is one server on a Unix socket: /path?db=N. The path of the URL is that of the socket, so
// the database is a parameter.
func (r *Redis) socket(u *url.URL, q *query) (err error) {
	if u.Host != "" || len(u.Path) < 2 {
		return errors.New("write the absolute path of the socket: redis+unix:///run/redis.sock")
	}
	r.Option.InitAddress = []string{u.Path}
	r.Option.DialCtxFn = func(ctx context.Context, path string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return dialer.DialContext(ctx, "unix", path)
	}
	r.Option.SelectDB, err = database(q.Get("db"))
	return err
}

// sentinel is a master that Sentinels know: h1:p,h2:p/master/db. The user and password of the URL
// are those of the master. The Sentinels have their own.
func (r *Redis) sentinel(u *url.URL, q *query) error {
	addrs, err := addresses(u.Host, sentinelPort)
	if err != nil {
		return err
	}
	master, db, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if master == "" {
		return errors.New("the URL names no master; write redis+sentinel://h1,h2,h3/mymaster")
	}
	r.Option.InitAddress = addrs
	r.Option.ForceSingleClient = false
	s := &r.Option.Sentinel // it has the timeouts and TLS already
	s.MasterSet, s.ClientName = master, r.Option.ClientName
	s.Username, s.Password = q.Get("sentinel-user"), q.Get("sentinel-password")
	s.TopologyRefreshInterval = 5 * time.Second // a message about a failover may be lost
	r.keep(s.Password)
	r.Option.SelectDB, err = database(db)
	return err
}

// clustered is a Redis Cluster: some of its nodes. The client learns the others.
func (r *Redis) clustered(u *url.URL) (err error) {
	if strings.Trim(u.Path, "/") != "" {
		return errors.New("a cluster has no database numbers; leave out what follows the hosts")
	}
	r.Cluster, r.Option.ForceSingleClient = true, false
	r.Option.InitAddress, err = addresses(u.Host, redisPort)
	return err
}

// setEngine reads the configuration of the engine. Three durations have an effect only with
// quarantine=on; without it they are refused, since they look like a protection.
func (r *Redis) setEngine(q *query) {
	r.Engine = redislock.Config{
		Prefix:        q.Get("prefix"),
		Quarantine:    q.only("quarantine", "on"),
		AllowEviction: q.only("eviction", "allow"),
		MinReplicas:   q.number("min-replicas", 0),
		MaxTTL:        q.duration("max-ttl", ShortestTTL, "30s"),
		ReplicaLag:    q.duration("replica-lag", time.Second, "10s, the servers' min-replicas-max-lag"),
		MarkerLife:    q.duration("marker-life", time.Minute, "2160h"),
		Retention:     q.duration("retention", time.Minute, "168h"),
	}
	for _, name := range []string{"max-ttl", "replica-lag", "marker-life"} {
		if q.Has(name) && !r.Engine.Quarantine {
			q.fail(name, "this has an effect with quarantine=on only; leave it out")
		}
	}
	if r.Engine.Quarantine && r.Cluster {
		q.fail("quarantine", "not available on a cluster; use redis+sentinel://, or guard the data with fencing tokens")
	}
}
