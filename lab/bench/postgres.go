package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// postgresSuite is pglock and what people write themselves.
var postgresSuite = suite{
	name:  "postgres",
	title: "PostgreSQL",
	notes: "The server has its default settings (`fsync` and `synchronous_commit` are on), except for the\n" +
		"number of connections. `bare` is `pg_advisory_lock` and `pg_advisory_unlock` on one connection,\n" +
		"one in each process of a hand-over. `pooled` does the same on a connection from a pool, which it\n" +
		"keeps while it holds or waits. `table` is a row with an expiry: `INSERT ... ON CONFLICT` every 100\n" +
		"ms, then a DELETE; each commit waits for the disk. None of the three has fencing tokens. `minimal`\n" +
		"is the least code with a token and a record of the holder: one function locks the key and writes\n" +
		"the row, another one clears the row and unlocks. It has no lease, no queue and no handling of\n" +
		"holders that disappear. `bare` writes nothing. In the chain, 12 processes wait in a queue, and\n" +
		"each releases as soon as it holds the lock.\n",
	contestants: []contestant{
		{name: bare, open: openAdvisory},
		{name: minimal, open: openMinimalRows, renews: true},
		{name: ours, open: openOursOnPostgres, renews: true},
		{name: "pooled", open: openPooled, renews: true},
		{name: "table", open: openTable},
	},
	signal:   contestant{name: bare, open: openAdvisory},
	measures: []measure{{"alone", alone}, {"handover", handover}, {"chain", chain}, {"crowd", crowd}, {"names", manyNames}},
	bars: map[string][]bar{
		"alone":    {atMost(bare, 1.6), atMost(minimal, 1.25)},
		"handover": {atMost(bare, 2.2), atMost(minimal, 1.5)},
	},
	per:   500,
	start: startPostgres,
}

// maxConnections is the most that one process opens to PostgreSQL.
const maxConnections = 1000

// pgxPool returns the pool for contestants that need this many connections at most, and
// whose commits wait for the disk, or not.
func (p *process) pgxPool(most int32, commits string) (*pgxpool.Pool, error) {
	return shared(p, fmt.Sprint("pool ", most, commits), func() (*pgxpool.Pool, func(), error) {
		cfg, err := pgxpool.ParseConfig(p.addr)
		if err != nil {
			return nil, nil, err
		}
		cfg.MaxConns = most
		cfg.ConnConfig.RuntimeParams["synchronous_commit"] = commits
		pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
		if err != nil {
			return nil, nil, err
		}
		return pool, pool.Close, nil
	})
}

func openOursOnPostgres(p *process) (client, error) {
	pool, err := p.pgxPool(4, "on") // the default of the library on a small machine
	if err != nil {
		return nil, err
	}
	engine := pglock.New(pool, nil)
	return ourClient{fencelock.New(engine, nil).With(fencelock.Options{TTL: ttl}), func() { _ = engine.Close() }}, nil
}

// advisoryClient has one connection and asks for no more than it must.
type advisoryClient struct {
	mu   *sync.Mutex // guards conn
	conn *pgx.Conn
}

func openAdvisory(p *process) (client, error) {
	conn, err := pgx.Connect(context.Background(), p.addr)
	return advisoryClient{&sync.Mutex{}, conn}, err
}

func (c advisoryClient) acquire(ctx context.Context, name string) (lock, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.conn.Exec(ctx, lockStatement, "bare:"+name)
	return advisoryLock{c, "bare:" + name}, err
}

func (c advisoryClient) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.conn.Close(context.Background())
}

type advisoryLock struct {
	client advisoryClient
	name   string
}

func (l advisoryLock) release() error {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	return unlock(l.client.conn, l.name)
}

func (advisoryLock) err() error { return nil }

// The two statements of every lock.
const (
	lockStatement   = `SELECT pg_advisory_lock(hashtextextended($1, 0))`
	unlockStatement = `SELECT pg_advisory_unlock(hashtextextended($1, 0))`
)

func unlock(conn *pgx.Conn, name string) error {
	var held bool
	err := conn.QueryRow(context.Background(), unlockStatement, name).Scan(&held)
	if err == nil && !held {
		return errors.New("not held")
	}
	return err
}
