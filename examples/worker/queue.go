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

// Queue is a list of tasks, and the place where their results are kept. A task is
// never gone before it has its result: one that was given out and is not done
// stays among those that Taken lists, until somebody puts it back.
//
// Begin and Finish are the guard: each task remembers the greatest fencing token
// that came with it, and a smaller one is refused.
type Queue interface {
	// Next gives out a task that waits; errNone if none does. Two workers may get
	// the same task, one after the other: the lock decides who does it.
	Next(ctx context.Context) (Task, error)
	// Taken returns the tasks that were given out and are not done.
	Taken(ctx context.Context) ([]Task, error)
	// PutBack lets a task that was given out wait again, unless it is done.
	PutBack(ctx context.Context, t Task) error
	// Begin notes that a holder of the task's lock starts, and from then on shuts out
	// every earlier one. errRefused if the task is done, or this token or a greater was here.
	Begin(ctx context.Context, t Task, token int64) error
	// Finish writes the result. errRefused if the task is done, or a greater token was here.
	Finish(ctx context.Context, t Task, token int64, result string) error
}

var (
	errNone    = errors.New("no task waits")
	errRefused = errors.New("the task is done, or a greater token was here")
)

// Task is something to do.
type Task struct {
	ID     int64
	Length time.Duration
}

// lockName is the name of the lock that whoever does t holds.
func (t Task) lockName() string { return fmt.Sprint("task/", t.ID) }

const (
	// SKIP LOCKED lets workers who ask at the same moment get different rows. It is
	// no lock on the task, since it ends with the statement.
	nextSQL = `UPDATE worker_task SET taken = true WHERE id = (
		SELECT id FROM worker_task WHERE NOT taken AND NOT done ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
	) RETURNING id, length`

	// The guard. A worker whose lock was lost comes with a token smaller than the
	// one that its successor began with, and changes no row.
	beginSQL  = `UPDATE worker_task SET token = $2, tries = tries + 1 WHERE id = $1 AND NOT done AND token < $2`
	finishSQL = `WITH fenced AS (
		UPDATE worker_task SET done = true, token = $2 WHERE id = $1 AND NOT done AND token <= $2 RETURNING id
	) INSERT INTO worker_result (task, token, result) SELECT id, $2, $3 FROM fenced`
)

// table is a queue in PostgreSQL: the tables of postgres.sql.
type table struct{ pool *pgxpool.Pool }

// open connects to the queue of a database, and to locks on the same server. What it
// opened is closed by calling done.
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
	rows, _ := q.pool.Query(ctx, `SELECT id, length FROM worker_task WHERE taken AND NOT done`) // the same
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
