package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/pglock"
)

// Queue stores tasks and their results. A task is kept until it has a result: Taken lists the tasks
// that a worker has taken and not finished, and PutBack makes them available again.
//
// Begin and Finish are the guard: the queue stores the greatest fencing token of each task and
// refuses smaller ones.
type Queue interface {
	// Next takes a waiting task, or returns errNone. After a PutBack two workers may have the same
	// task; the lock decides which of them works on it.
	Next(ctx context.Context) (Task, error)
	// Taken returns the tasks that were taken and are not done.
	Taken(ctx context.Context) ([]Task, error)
	// PutBack makes a taken task wait again, unless it is done.
	PutBack(ctx context.Context, t Task) error
	// Begin stores the token of a holder of the task's lock. After that, earlier holders are refused.
	// It returns errRefused if the task is done or has this token or a greater one.
	Begin(ctx context.Context, t Task, token int64) error
	// Finish stores the result. It returns errRefused if the task is done or has a greater token.
	Finish(ctx context.Context, t Task, token int64, result string) error
}

var (
	errNone    = errors.New("no task is waiting")
	errRefused = errors.New("the task is done, or a later holder of its lock has begun it")
)

// Task is a unit of work.
type Task struct {
	ID     int64
	Length time.Duration
}

// lockName returns the name of the lock under which t is processed.
func (t Task) lockName() string { return fmt.Sprint("task/", t.ID) }

const (
	// SKIP LOCKED gives different rows to workers that ask at the same moment. It does not lock the
	// task, because row locks end with the statement.
	nextSQL = `UPDATE worker_task SET taken = true WHERE id = (
		SELECT id FROM worker_task WHERE NOT taken AND NOT done ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
	) RETURNING id, length`

	// The guard. A worker that has lost its lock has a smaller token than its successor, so its
	// UPDATE changes no row.
	beginSQL  = `UPDATE worker_task SET token = $2, tries = tries + 1 WHERE id = $1 AND NOT done AND token < $2`
	finishSQL = `WITH fenced AS (
		UPDATE worker_task SET done = true, token = $2 WHERE id = $1 AND NOT done AND token <= $2 RETURNING id
	) INSERT INTO worker_result (task, token, result) SELECT id, $2, $3 FROM fenced`
)

// table is a queue in PostgreSQL: the tables of postgres.sql.
type table struct{ pool *pgxpool.Pool }

// open connects to the queue in a database and to locks on the same server. The caller must call
// done to close both.
func open(ctx context.Context, url string) (q Queue, locks *fencelock.Locker, done func(), err error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, nil, nil, err
	}
	engine := pglock.New(pool, nil)
	return table{pool}, fencelock.New(engine, nil), func() { _ = engine.Close(); pool.Close() }, nil
}

func (q table) Next(ctx context.Context) (Task, error) {
	rows, _ := q.pool.Query(ctx, nextSQL) // CollectOneRow returns the error
	task, err := pgx.CollectOneRow(rows, pgx.RowToStructByPos[Task])
	if errors.Is(err, pgx.ErrNoRows) {
		err = errNone
	}
	return task, err
}

func (q table) Taken(ctx context.Context) ([]Task, error) {
	rows, _ := q.pool.Query(ctx, `SELECT id, length FROM worker_task WHERE taken AND NOT done`) // CollectRows returns the error
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Task])
}

func (q table) PutBack(ctx context.Context, t Task) error {
	_, err := q.pool.Exec(ctx, `UPDATE worker_task SET taken = false WHERE id = $1 AND NOT done`, t.ID)
	return err
}

func (q table) Begin(ctx context.Context, t Task, token int64) error {
	return q.guarded(ctx, beginSQL, t.ID, token)
}

func (q table) Finish(ctx context.Context, t Task, token int64, result string) error {
	return q.guarded(ctx, finishSQL, t.ID, token, result)
}

// guarded executes a statement that changes no row if it is refused.
func (q table) guarded(ctx context.Context, sql string, args ...any) error {
	tag, err := q.pool.Exec(ctx, sql, args...)
	if err == nil && tag.RowsAffected() == 0 {
		err = errRefused
	}
	return err
}
