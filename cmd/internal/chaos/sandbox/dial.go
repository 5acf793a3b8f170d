//go:build unix

package sandbox

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/rueidis"

	"github.com/fencelock/fencelock/cmd/internal/engineurl"
)

// through makes the client of a URL connect by dial.
func through(target engineurl.Target, dial engineurl.Dialer) {
	byNetwork := func(ctx context.Context, _, addr string) (net.Conn, error) { return dial(ctx, addr) }
	switch t := target.(type) {
	case *engineurl.Redis:
		redisThrough(&t.Option, dial)
	case *engineurl.Redlock:
		redisThrough(&t.Option, dial)
	case *engineurl.Postgres:
		postgresThrough(&t.Pool.ConnConfig.Config, byNetwork)
	case *engineurl.Rows:
		postgresThrough(&t.Pool.ConnConfig.Config, byNetwork)
		if t.Direct != nil {
			postgresThrough(t.Direct, byNetwork)
		}
	case *engineurl.MySQL:
		t.Client.DialFunc = byNetwork
	case *engineurl.Kubernetes:
		httpThrough(t.Transport, byNetwork)
	case *engineurl.Bucket:
		httpThrough(t.Transport, byNetwork)
	case *engineurl.Dynamo:
		httpThrough(t.Transport, byNetwork)
	case *engineurl.Store:
		t.Dial = dial
	}
}

// httpThrough makes a transport use a dialer. TLS still verifies the host of the URL.
func httpThrough(t *http.Transport, dial pgconn.DialFunc) { t.Proxy, t.DialContext = nil, dial }

// postgresThrough makes a client use a dialer, unless the server is a socket of this host.
func postgresThrough(client *pgconn.Config, dial pgconn.DialFunc) {
	if !strings.HasPrefix(client.Host, "/") {
		client.DialFunc = dial
	}
}

// redisThrough makes a client use a dialer, unless the server is a socket of this host.
func redisThrough(client *rueidis.ClientOption, dial engineurl.Dialer) {
	if client.DialCtxFn != nil {
		return
	}
	client.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, d.Timeout)
		defer cancel()
		conn, err := dial(ctx, addr)
		if err != nil || config == nil {
			return conn, err
		}
		if config.ServerName == "" {
			config = config.Clone()
			config.ServerName, _, _ = net.SplitHostPort(addr)
		}
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return secure, nil
	}
}
