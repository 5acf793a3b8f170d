package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverClient is a client of River, which elects a leader for its maintenance. River does not show
// its users who leads, so the log of its elector is read: it has a line after each gain, and one
// when the client is a follower again, which is after it
// has told its maintenance services to stop. The TTL is River's own, 15 s.
type riverClient struct {
	pool   *pgxpool.Pool
	river  *river.Client[pgx.Tx]
	gained chan struct{} // receives each gain
	terms  *atomic.Int64 // odd while the client is the leader
}

const riverTTL = 15 * time.Second

// migrateRiver creates River's tables.
func migrateRiver(b *bed, dsn string) {
	pool, err := pgxpool.New(context.Background(), dsn)
	b.must(err)
	defer pool.Close()
	m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	b.must(err)
	_, err = m.Migrate(context.Background(), rivermigrate.DirectionUp, nil)
	b.must(err)
}

func openRiver(s spec) (client, error) {
	pool, err := pgxpool.New(context.Background(), s.Addrs[0])
	if err != nil {
		return nil, err
	}
	return &riverClient{pool: pool, gained: make(chan struct{}, 1), terms: &atomic.Int64{}}, nil
}

// acquire starts the client and waits until it is the leader.
func (c *riverClient) acquire(ctx context.Context, _ string) (hold, error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[noArgs]) error { return nil }))
	var err error
	c.river, err = river.NewClient(riverpgxv5.New(c.pool), &river.Config{
		Logger:  slog.New(electorLog{client: c}),
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}},
		Workers: workers,
	})
	if err != nil {
		return nil, err
	}
	if err := c.river.Start(context.Background()); err != nil {
		return nil, err
	}
	select {
	case <-c.gained:
		return riverHold{c, c.terms.Load()}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *riverClient) close() {
	if c.river != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.river.StopAndCancel(ctx)
	}
	c.pool.Close()
}

type noArgs struct{}

func (noArgs) Kind() string { return "none" }

// riverHold is one term.
type riverHold struct {
	client *riverClient
	term   int64
}

func (h riverHold) err() error {
	if h.client.terms.Load() != h.term {
		return errLost
	}
	return nil
}

func (h riverHold) release() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(h.err(), h.client.river.StopAndCancel(ctx))
}

// electorLog counts the terms of a client in what its elector logs.
type electorLog struct {
	slog.Handler // nil; all methods are below
	client       *riverClient
}

func (electorLog) Enabled(context.Context, slog.Level) bool { return true }
func (l electorLog) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l electorLog) WithGroup(string) slog.Handler          { return l }

func (l electorLog) Handle(_ context.Context, r slog.Record) error {
	terms := l.client.terms
	switch {
	case strings.HasSuffix(r.Message, "Elector: Gained leadership"):
		terms.Add(1)
		select {
		case l.client.gained <- struct{}{}:
		default:
		}
	case strings.HasSuffix(r.Message, "Elector: Attempting to gain leadership") && terms.Load()%2 == 1:
		terms.Add(1)
	}
	return nil
}
