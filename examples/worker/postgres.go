package main

import (
	"context"
	_ "embed" // for the schema
	"errors"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed postgres.sql
var schema string

// The statements of the queue. SKIP LOCKED lets workers who ask at the same moment
// get different rows; it is no lock on the task, since it ends with the statement.
const (
	nextSQL = `UPDATE worker_task SET taken = true WHERE id = (
		SELECT id FROM worker_task WHERE NOT taken AND NOT done ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
	) RETURNING id, length_us`

	// The guard. A worker whose lock was lost comes with a token smaller than the
	// one that its successor began with, and changes no row.
	beginSQL  = `UPDATE worker_task SET token = $2, tries = tries + 1 WHERE id = $1 AND NOT done AND token < $2 RETURNING tries`
	finishSQL = `WITH fenced AS (
		UPDATE worker_task SET done = true, token = $2 WHERE id = $1 AND NOT done AND token <= $2 RETURNING id
	) INSERT INTO worker_result (task, token, worker, result) SELECT id, $2, $3, $4 FROM fenced`

	statesSQL = `SELECT t.id, t.tries, t.token, array_remove(array_agg(r.token), NULL)
		FROM worker_task t LEFT JOIN worker_result r ON r.task = t.id GROUP BY t.id ORDER BY t.id`
)

// postgresQueue is a table. A row that was taken and is not done is put back when
// its lock is free, so that a worker that dies loses nothing.
type postgresQueue struct{ pool *pgxpool.Pool }

// openPostgres connects, and makes the tables if need be.
func openPostgres(ctx context.Context, url string) (store, error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return store{}, err
	}
	engine := pglock.New(pool, nil)
	s := store{
		queue: postgresQueue{pool},
		locks: func(cfg *fencelock.Config) *fencelock.Locker { return fencelock.New(engine, cfg) },
		close: func() { _ = engine.Close(); pool.Close() },
	}
	if _, err := pool.Exec(ctx, schema); err != nil {
		s.close()
		return store{}, err
	}
	return s, nil
}

func (q postgresQueue) Add(ctx context.Context, length time.Duration) error {
	_, err := q.pool.Exec(ctx, `INSERT INTO worker_task (length_us) VALUES ($1)`, length.Microseconds())
	return err
}

func (q postgresQueue) Next(ctx context.Context) (Task, error) {
	rows, err := q.pool.Query(ctx, nextSQL)
	if err != nil {
		return Task{}, err
	}
	task, err := pgx.CollectOneRow(rows, toTask)
	if errors.Is(err, pgx.ErrNoRows) {
		return Task{}, errNone
	}
	return task, err
}

func toTask(row pgx.CollectableRow) (t Task, err error) {
	var us int64
	err = row.Scan(&t.ID, &us)
	t.Length = time.Duration(us) * time.Microsecond
	return t, err
}

func (q postgresQueue) Taken(ctx context.Context) ([]Task, error) {
	rows, err := q.pool.Query(ctx, `SELECT id, length_us FROM worker_task WHERE taken AND NOT done`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, toTask)
}

func (q postgresQueue) PutBack(ctx context.Context, t Task) error {
	_, err := q.pool.Exec(ctx, `UPDATE worker_task SET taken = false WHERE id = $1 AND NOT done`, t.ID)
	return err
}

func (q postgresQueue) Begin(ctx context.Context, t Task, token int64) (tries int, err error) {
	err = q.pool.QueryRow(ctx, beginSQL, t.ID, token).Scan(&tries)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, errRefused
	}
	return tries, err
}

func (q postgresQueue) Finish(ctx context.Context, t Task, token int64, result string) error {
	tag, err := q.pool.Exec(ctx, finishSQL, t.ID, token, me(), result)
	if err == nil && tag.RowsAffected() == 0 {
		return errRefused
	}
	return err
}

func (q postgresQueue) States(ctx context.Context) ([]State, error) {
	rows, err := q.pool.Query(ctx, statesSQL)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[State])
}
