package goredis

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redislock/internal/prompt"
	"github.com/redis/go-redis/v9"
)

var errRing = fmt.Errorf("%w: goredis: a redis.Ring moves keys between servers, so it cannot keep locks: use a redis.Client or a redis.ClusterClient", driver.ErrConfig)

// New returns an engine on an application's client. It does no I/O. The cfg may be
// nil.
func New(client redis.UniversalClient, cfg *redislock.Config) *redislock.Engine {
	return redislock.NewConn(newConn(client), cfg)
}

// conn is a redislock.Conn on a go-redis client.
type conn struct {
	client  redis.UniversalClient
	refused error // why the client does not serve
}

func newConn(client redis.UniversalClient) *conn {
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

// Cluster reports whether the client talks to a Redis Cluster.
func (c *conn) Cluster() bool {
	_, ok := c.client.(*redis.ClusterClient)
	return ok
}

// check says why a call cannot even begin.
func (c *conn) check(ctx context.Context) error {
	if c.refused != nil {
		return c.refused
	}
	return ctx.Err()
}

// errorOf makes an error of the client's one that redislock knows.
func errorOf(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if reply, ok := errors.AsType[redis.Error](err); ok {
		return redislock.ServerError{Text: reply.Error()}
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
		return redislock.Unreached(err, client.Options().Addr)
	case *redis.ClusterClient:
		return redislock.Unreached(err, client.Options().Addrs...)
	}
	return err
}

// promptly returns what f returns, or what failed returns as soon as ctx ends,
// by its deadline as well.
func promptly[T any](ctx context.Context, f func() T, failed func(error) T) T {
	ctx, cancel := timed(ctx)
	defer cancel()
	return prompt.Do(ctx, f, failed)
}
