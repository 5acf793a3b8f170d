package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// minimalRows is the least that a lock on PostgreSQL can do whose holder is written down: one
// function locks the key and takes its row, with a token, and another frees the row and
// unlocks. Nobody renews a lease, has a place in a queue or learns that a holder vanished.
type minimalRows struct{ pool *pgxpool.Pool }

// minimalSQL makes the functions, once for each server.
//
//go:embed minimal.sql
var minimalSQL string

func openMinimalRows(p *process) (client, error) {
	pool, err := p.pgxPool(maxConnections, "off")
	return minimalRows{pool}, err
}

func (c minimalRows) acquire(ctx context.Context, name string) (lock, error) {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	l := minimalRow{conn, "minimal:" + name, rand.Text()}
	var token int64
	err = conn.QueryRow(ctx, `SELECT minimal_take(hashtextextended($1, 0), $1, $2, $3)`, l.name, l.owner, ttl.Milliseconds()).Scan(&token)
	if err == nil && token == 0 {
		err = fmt.Errorf("%s has a holder", name)
	}
	if err != nil {
		conn.Release() // a cancelled statement has closed it
		return nil, err
	}
	return l, nil
}

func (minimalRows) close() {}

type minimalRow struct {
	conn        *pgxpool.Conn
	name, owner string
}

func (l minimalRow) release() error {
	defer l.conn.Release()
	var freed bool
	err := l.conn.QueryRow(context.Background(), `SELECT coalesce(minimal_free(hashtextextended($1, 0), $2), false)`, l.name, l.owner).Scan(&freed)
	if err == nil && !freed {
		return errors.New("not held")
	}
	return err
}

func (l minimalRow) err() error {
	if l.conn.Conn().IsClosed() {
		return errors.New("the connection ended")
	}
	return nil
}
