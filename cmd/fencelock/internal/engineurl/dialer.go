//go:build unix

package engineurl

import (
	"context"
	"crypto/tls"
	"net"
)

// A Dialer connects to an address, such as "host:6379".
type Dialer func(ctx context.Context, addr string) (net.Conn, error)

type dialerKey struct{}

// WithDialer returns a context with which Open makes the connections of an engine by dial. Unix
// sockets have no address and are not affected.
func WithDialer(ctx context.Context, dial Dialer) context.Context {
	return context.WithValue(ctx, dialerKey{}, dial)
}

// dialerOf returns the dialer of a context, or nil.
func dialerOf(ctx context.Context) Dialer {
	dial, _ := ctx.Value(dialerKey{}).(Dialer)
	return dial
}

// through makes a client use the dialer of a context.
func (r *redisClient) through(ctx context.Context) {
	dial := dialerOf(ctx)
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
