package main

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// pooledClient waits in the server on a connection of a pool, which the lock
// then keeps.
type pooledClient struct{ pool *pgxpool.Pool }

func openPooled(p *process) (client, error) {
	pool, err := p.pgxPool(maxConnections, "on")
	return pooledClient{pool}, err
}

func (c pooledClient) acquire(ctx context.Context, name string) (lock, error) {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, lockStatement, "pooled:"+name); err != nil {
		conn.Release() // a cancelled statement has closed it
		return nil, err
	}
	return pooledLock{conn, "pooled:" + name}, nil
}

func (pooledClient) close() {}

type pooledLock struct {
	conn *pgxpool.Conn
	name string
}

func (l pooledLock) release() error {
	defer l.conn.Release()
	return unlock(l.conn.Conn(), l.name)
}

func (l pooledLock) err() error {
	if l.conn.Conn().IsClosed() {
		return errors.New("the connection ended")
	}
	return nil
}

// tableClient keeps a row for each lock and polls, ten times a second.
type tableClient struct{ pool *pgxpool.Pool }

const (
	createTable = `CREATE TABLE IF NOT EXISTS locks (name text PRIMARY KEY, owner text NOT NULL, expires timestamptz NOT NULL)`
	takeRow     = `INSERT INTO locks VALUES ($1, $2, now() + $3::interval)
		ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires = excluded.expires WHERE locks.expires < now()`
	deleteRow = `DELETE FROM locks WHERE name = $1 AND owner = $2`
)

func openTable(p *process) (client, error) {
	pool, err := p.pgxPool(4, "on")
	return tableClient{pool}, err
}

func (c tableClient) acquire(ctx context.Context, name string) (lock, error) {
	l := rowLock{c.pool, name, rand.Text()}
	for {
		done, err := c.pool.Exec(ctx, takeRow, name, l.owner, ttl)
		if err != nil {
			return nil, err
		}
		if done.RowsAffected() == 1 {
			return l, nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (tableClient) close() {}

type rowLock struct {
	pool        *pgxpool.Pool
	name, owner string
}

func (l rowLock) release() error {
	done, err := l.pool.Exec(context.Background(), deleteRow, l.name, l.owner)
	if err == nil && done.RowsAffected() != 1 {
		return errors.New("not held")
	}
	return err
}

func (rowLock) err() error { return nil }
