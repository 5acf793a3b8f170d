package main

import (
	"context"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/pglock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redlock"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"
)

// fencelockClient is fencelock on one of its engines.
type fencelockClient struct {
	locks *fencelock.Locker
	ends  []func()
}

func newFencelock(engine fencelock.Engine, ttl time.Duration, ends ...func()) client {
	locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: ttl})
	if c, ok := engine.(interface{ Close() error }); ok {
		ends = append([]func(){func() { _ = c.Close() }}, ends...)
	}
	return fencelockClient{locks, ends}
}

func openFencelockRedis(s spec) (client, error) { return fencelockOnRedis(s, nil) }
func openFencelockQuarantine(s spec) (client, error) {
	return fencelockOnRedis(s, &redislock.Config{Quarantine: true, MaxTTL: s.TTL})
}

func fencelockOnRedis(s spec, cfg *redislock.Config) (client, error) {
	conn, err := dial(s.Addrs[0])
	if err != nil {
		return nil, err
	}
	return newFencelock(redislock.New(conn, cfg), s.TTL, conn.Close), nil
}

// redlockEngine is an engine on three nodes and its connections.
type redlockEngine struct {
	engine *redlock.Engine
	ends   []func()
}

func newRedlockEngine(addrs []string, ttl time.Duration) (redlockEngine, error) {
	var r redlockEngine
	var nodes []redlock.Node
	for _, addr := range addrs {
		conn, err := dial(addr)
		if err != nil {
			return r, err
		}
		nodes, r.ends = append(nodes, redlock.Rueidis(conn)), append(r.ends, conn.Close)
	}
	r.engine = redlock.New(nodes, &redlock.Config{MaxTTL: ttl})
	return r, nil
}

func (r redlockEngine) close() {
	for _, end := range r.ends {
		end()
	}
}

func openFencelockRedlock(s spec) (client, error) {
	r, err := newRedlockEngine(s.Addrs, s.TTL)
	if err != nil {
		return nil, err
	}
	return newFencelock(r.engine, s.TTL, r.ends...), nil
}

func openFencelockPostgres(s spec) (client, error) {
	pool, err := pgxpool.New(context.Background(), s.Addrs[0])
	if err != nil {
		return nil, err
	}
	return newFencelock(pglock.New(pool, &pglock.Config{MaxTTL: s.TTL}), s.TTL, pool.Close), nil
}

// dial connects as docs/engines/redis.md recommends.
func dial(addr string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true, ConnWriteTimeout: 3 * time.Second,
	})
}

func (c fencelockClient) acquire(ctx context.Context, name string) (hold, error) {
	l, err := c.locks.Acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	return fencelockHold{l}, nil
}

func (c fencelockClient) close() {
	for _, end := range c.ends {
		end()
	}
}

type fencelockHold struct{ lock *fencelock.Lock }

func (h fencelockHold) err() error     { return h.lock.Err() }
func (h fencelockHold) release() error { return h.lock.Release() }
