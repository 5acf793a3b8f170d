//go:build unix

package engineurl

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/fencelock/fencelock/driver"
)

// A dialer connects to an address, such as "host:6379".
type dialer = func(ctx context.Context, addr string) (net.Conn, error)

type dialerKey struct{}

// OpenThrough is [Open] with connections made by dial, unless that is nil. Unix sockets have no
// address and are not affected.
func OpenThrough(ctx context.Context, url string, dial dialer) (driver.Engine, func() error, error) {
	return Open(context.WithValue(ctx, dialerKey{}, dial), url)
}

// dialerOf returns the dialer of a context, or nil.
func dialerOf(ctx context.Context) dialer {
	dial, _ := ctx.Value(dialerKey{}).(dialer)
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
