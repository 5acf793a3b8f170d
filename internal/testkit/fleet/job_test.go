//go:build unix

package fleet_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/idempotent/idempotentpgx"
)

// jobLease is the lease of a run.
const jobLease = 2 * time.Second

// A worker does jobs that are delivered to it, once for each, however often they are.
type worker struct {
	member
	in    *bufio.Scanner
	store *idempotent.Store // for jobs with a lease
	pool  *pgxpool.Pool     // for jobs in a transaction
}

// work does the jobs whose names come as lines, and answers each with one: "done" and
// the result, "lost", or "failed" and why. It ends with its input.
func work(in *bufio.Scanner) error {
	w := &worker{member: member{dir: os.Getenv(envDir)}, in: in}
	do := w.lease
	kind, addr := os.Getenv(envKind), os.Getenv(envAddr)
	if kind == "transaction" {
		pool, err := pgxpool.New(context.Background(), addr)
		if err != nil {
			return err
		}
		w.pool, do = pool, w.transaction
	} else {
		e, err := open(kind, addr)
		if err != nil {
			return err
		}
		w.store = idempotent.New(e.(driver.RecordKeeper).Records(), &idempotent.Config{Lease: jobLease})
	}
	fmt.Println("ready")
	for w.in.Scan() {
		result, err := do(w.in.Text())
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
	return w.in.Err()
}

// lease does a job under a lease. Its result is the token of the run. The books of the
// job show whether two runs overlap; a job called "hold" has none, and lasts until the
// next line comes.
func (w *worker) lease(job string) (string, error) {
	return idempotent.Do(context.Background(), w.store, job, func(ctx context.Context) (string, error) {
		token, _ := idempotent.TokenFrom(ctx)
		if job == "hold" {
			fmt.Println("begun")
			w.in.Scan()
			return strconv.FormatInt(token, 10), nil
		}
		err := w.visit(ctx, map[string]int64{job: token}, func() error {
			idle(ctx, patience) // a context may end late on a busy machine
			return context.Cause(ctx)
		})
		return strconv.FormatInt(token, 10), err
	})
}

// transaction does a job whose effect is a row.
func (w *worker) transaction(job string) (result string, err error) {
	ctx := context.Background()
	err = pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		result, err = idempotentpgx.DoTx(ctx, tx, job, nil, func(ctx context.Context, tx pgx.Tx) (row string, err error) {
			idle(ctx, 10*time.Millisecond)
			return row, tx.QueryRow(ctx, "INSERT INTO effect (job) VALUES ($1) RETURNING id::text", job).Scan(&row)
		})
		return err
	})
	return result, err
}
