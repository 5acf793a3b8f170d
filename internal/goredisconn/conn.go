// Package goredisconn provides connections on go-redis clients for the engines on Redis.
package goredisconn

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/redisconn"
	"github.com/redis/go-redis/v9"
)

var errRing = fmt.Errorf("%w: goredis: a redis.Ring moves keys between servers, so it cannot keep locks: use a redis.Client or a redis.ClusterClient", driver.ErrConfig)

// conn is a redisconn.Conn on a go-redis client. It does not close the client.
type conn struct {
	client  redis.UniversalClient
	refused error // why the client cannot be used
}

// New returns a connection on an application's client. It accepts only the listed types: a wrapper
// or another kind of client may send a command twice, or to a server of its own choice.
func New(client redis.UniversalClient) redisconn.Conn {
	c := &conn{client: client}
	switch client.(type) {
	case *redis.Client, *redis.ClusterClient:
	case *redis.Ring:
		c.refused = errRing
	default:
		c.refused = fmt.Errorf("%w: goredis: cannot use a %T: pass the redis.Client or redis.ClusterClient itself", driver.ErrConfig, client)
	}
	return c
}

// Cluster implements redisconn.Conn.
func (c *conn) Cluster() bool {
	_, ok := c.client.(*redis.ClusterClient)
	return ok
}

// check returns an error if a call cannot start. Constructors return no error, so an unsuitable
// client is reported here.
func (c *conn) check(ctx context.Context) error {
	if c.refused != nil {
		return c.refused
	}
	return ctx.Err()
}

// once is a command that the client does not send again after it may have reached the server.
type once struct{ *redis.Cmd }

// NoRetry tells go-redis not to retry.
func (once) NoRetry() bool { return true }

// errorOf converts an error of the client to one of redisconn.
func errorOf(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if reply, ok := errors.AsType[redis.Error](err); ok {
		return redisconn.ErrorReply(reply.Error())
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// Unreached adds the addresses to an error that is not a server's.
func (c *conn) Unreached(err error) error {
	switch client := c.client.(type) {
	case *redis.Client:
		return redisconn.Unreached(err, client.Options().Addr)
	case *redis.ClusterClient:
		return redisconn.Unreached(err, client.Options().Addrs...)
	}
	return err
}
