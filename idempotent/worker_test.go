//go:build unix

package idempotent_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/idempotent/idempotentpgx"
	"github.com/fencelock/fencelock/internal/testkit/engines"
)

// jobLease is the TTL of the lock of a run.
const jobLease = 2 * time.Second

// orders tell a worker where its jobs are done.
type orders struct {
	Store       engines.Store
	Transaction bool   // jobs are done in transactions of PostgreSQL
	Dir         string // of the logbooks
}

// A worker does jobs that are delivered to it, once for each, however often they are.
type worker struct {
	dir   string
	in    *bufio.Scanner
	store *idempotent.Store // for jobs with a lease
	pool  *pgxpool.Pool     // for jobs in a transaction
}

// work does the jobs whose names come as lines, and answers each with one: "done" and
// the result, "lost", or "failed" and why. It ends with its input.
func work(o orders, in *bufio.Scanner) error {
	w := &worker{dir: o.Dir, in: in}
	do := w.lease
	if o.Transaction {
		pool, err := pgxpool.New(context.Background(), o.Store.At)
		if err != nil {
			return err
		}
		w.pool, do = pool, w.transaction
	} else {
		e, err := o.Store.Open()
		if err != nil {
			return err
		}
		w.store = idempotent.New(fencelock.New(e, nil).With(fencelock.Options{TTL: jobLease}), e.(driver.RecordKeeper).Records(), nil)
	}
	fmt.Println("ready")
	for in.Scan() {
		result, err := do(in.Text())
		switch {
		case errors.Is(err, errOverlap):
			return err
		case errors.Is(err, fencelock.ErrLost):
			fmt.Println("lost")
		case err != nil:
			fmt.Println("failed", strings.ReplaceAll(err.Error(), "\n", " "))
		default:
			fmt.Println("done", result)
		}
	}
	return in.Err()
}

var errOverlap = errors.New("two runs")

// lease does a job under a lease. Its result is the token of the run. The logbook of the
// job shows whether two runs overlap; a job called "hold" has none, and lasts until the
// next line comes. On a busy machine the lock may not answer in time: a job that has not begun is
// tried again.
func (w *worker) lease(job string) (result string, err error) {
	began := false
	for end := time.Now().Add(patience); ; {
		result, err = idempotent.Do(context.Background(), w.store, job, func(ctx context.Context) (string, error) {
			began = true
			token, _ := fencelock.TokenFrom(ctx)
			if job == "hold" {
				fmt.Println("begun")
				w.in.Scan()
				return strconv.FormatInt(token, 10), nil
			}
			return strconv.FormatInt(token, 10), w.visit(ctx, job, token)
		})
		if began || !errors.Is(err, fencelock.ErrUnavailable) || time.Now().After(end) {
			return result, err
		}
	}
}

// visit writes into the logbook, stays for a moment, and writes again. A run that was overtaken
// must know by itself that it is lost: otherwise there were two.
func (w *worker) visit(ctx context.Context, job string, token int64) error {
	for _, step := range []func(logbook, int64) error{logbook.enter, logbook.leave} {
		err := step(logbook{w.dir, job}, token)
		if errors.Is(err, errOvertaken) {
			if pause(ctx, patience); ctx.Err() == nil { // a context may end late on a busy machine
				return fmt.Errorf("%w of %s: %w", errOverlap, job, err)
			}
		}
		if err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		pause(ctx, rand.N(100*time.Millisecond))
	}
	return nil
}

// pause waits for d, or for the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// transaction does a job whose effect is a row.
func (w *worker) transaction(job string) (result string, err error) {
	ctx := context.Background()
	err = pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		result, err = idempotentpgx.DoTx(ctx, tx, job, nil, func(ctx context.Context, tx pgx.Tx) (row string, err error) {
			pause(ctx, rand.N(100*time.Millisecond))
			return row, tx.QueryRow(ctx, "INSERT INTO effect (job) VALUES ($1) RETURNING id::text", job).Scan(&row)
		})
		return err
	})
	return result, err
}
