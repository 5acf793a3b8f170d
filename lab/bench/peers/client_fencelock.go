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
	init  func(context.Context) error // of the engine; nil if it has none
	ends  []func()
}

func newFencelock(engine fencelock.Engine, ttl time.Duration, ends ...func()) client {
	locks := fencelock.New(engine, nil).With(fencelock.Options{TTL: ttl})
	if c, ok := engine.(interface{ Close() error }); ok {
		ends = append([]func(){func() { _ = c.Close() }}, ends...)
	}
	out := fencelockClient{locks: locks, ends: ends}
	if e, ok := engine.(interface{ Init(context.Context) error }); ok {
		out.init = e.Init
	}
	return out
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

func openFencelockRedlock(s spec) (client, error) {
	var nodes []redlock.Node
	var ends []func()
	for _, addr := range s.Addrs {
		conn, err := dial(addr)
		if err != nil {
			return nil, err
		}
		nodes, ends = append(nodes, redlock.Rueidis(conn)), append(ends, conn.Close)
	}
	return newFencelock(redlock.New(nodes, &redlock.Config{MaxTTL: s.TTL}), s.TTL, ends...), nil
}

func openFencelockPostgres(s spec) (client, error) {
	pool, err := pgxpool.New(context.Background(), s.Addrs[0])
	if err != nil {
		return nil, err
	}
	return newFencelock(pglock.New(pool, &pglock.Config{MaxTTL: s.TTL}), s.TTL, pool.Close), nil
}

// initEngine marks a new server as never used, so that it grants at once: otherwise it waits for
// MaxTTL first, in case it has lost locks.
func initEngine(b *bed, s spec) {
	c, err := s.open()
	b.must(err)
	defer c.close()
	b.must(c.(fencelockClient).init(context.Background()))
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
