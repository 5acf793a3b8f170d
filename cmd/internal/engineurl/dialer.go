//go:build unix

package engineurl

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
)

// A dialer connects to an address, such as "host:6379".
type dialer = func(ctx context.Context, addr string) (net.Conn, error)

// throughHTTP makes a transport use a dialer, unless it is nil. TLS still verifies the host of the URL.
func throughHTTP(t *http.Transport, dial dialer) {
	if dial == nil {
		return
	}
	t.Proxy = nil
	t.DialContext = func(ctx context.Context, _, addr string) (net.Conn, error) { return dial(ctx, addr) }
}

// through makes a client use a dialer, unless it is nil. It affects no Unix socket.
func (r *redisClient) through(dial dialer) {
	if dial == nil || r.option.DialCtxFn != nil {
		return
	}
	r.option.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
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
