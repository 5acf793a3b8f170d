package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	_ "github.com/lib/pq" // the driver of cirello.io/pglock
)

// leaseClient does what cirello.io/pglock does, which is not available as a module: a lock is a row
// with a version, the holder changes the version with each heartbeat, and a waiter takes the row if
// its version has not changed for a whole lease. Each heartbeat has the lease as its time limit, on
// lib/pq. The code is written for this comparison and is not that of the library.
type leaseClient struct {
	db  *sql.DB
	ttl time.Duration
}

func openLease(s spec) (client, error) {
	db, err := sql.Open("postgres", s.Addrs[0])
	if err != nil {
		return nil, err
	}
	_, err = db.Exec(`CREATE TABLE IF NOT EXISTS lease (name text PRIMARY KEY, version bigint);
		CREATE SEQUENCE IF NOT EXISTS lease_version`)
	return leaseClient{db, s.TTL}, err
}

func (c leaseClient) acquire(ctx context.Context, name string) (hold, error) {
	seen := int64(-1)
	for {
		mine, version, err := c.try(ctx, name, seen)
		if err != nil {
			return nil, err
		}
		if mine == version {
			return c.beat(name, mine), nil
		}
		seen = version
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(c.ttl):
		}
	}
}

// try takes the row if it is free or has the version seen. It returns the version that it wanted to
// write and the one that the row has.
func (c leaseClient) try(ctx context.Context, name string, seen int64) (mine, version int64, err error) {
	if mine, err = c.next(ctx); err != nil {
		return 0, 0, err
	}
	_, err = c.db.ExecContext(ctx, `INSERT INTO lease VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET version = $2
		WHERE lease.version IS NULL OR lease.version = $3`, name, mine, seen)
	if err != nil {
		return 0, 0, err
	}
	err = c.db.QueryRowContext(ctx, `SELECT coalesce(version, -1) FROM lease WHERE name = $1`, name).Scan(&version)
	return mine, version, err
}

func (c leaseClient) next(ctx context.Context) (version int64, err error) {
	err = c.db.QueryRowContext(ctx, `SELECT nextval('lease_version')`).Scan(&version)
	return version, err
}

// beat starts the heartbeats of a row. The goroutine ends with a heartbeat that fails, or with
// release.
func (c leaseClient) beat(name string, version int64) hold {
	ctx, cancel := context.WithCancel(context.Background())
	h := leaseHold{c, name, ctx, cancel}
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			if c.heartbeat(ctx, name, &version) != nil {
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(c.ttl * 2 / 5):
			}
		}
	}()
	return h
}

func (c leaseClient) heartbeat(ctx context.Context, name string, version *int64) error {
	ctx, cancel := context.WithTimeout(ctx, c.ttl)
	defer cancel()
	next, err := c.next(ctx)
	if err != nil {
		return err
	}
	done, err := c.db.ExecContext(ctx, `UPDATE lease SET version = $3 WHERE name = $1 AND version = $2`, name, *version, next)
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n == 0 {
		return errors.Join(errLost, err)
	}
	*version = next
	return nil
}

func (c leaseClient) close() { _ = c.db.Close() }

type leaseHold struct {
	client leaseClient
	name   string
	ctx    context.Context // ends with the heartbeats, as the context of pglock's Do
	cancel context.CancelFunc
}

func (h leaseHold) err() error { return h.ctx.Err() }

func (h leaseHold) release() error {
	h.cancel()
	_, err := h.client.db.Exec(`UPDATE lease SET version = NULL WHERE name = $1`, h.name)
	return err
}
