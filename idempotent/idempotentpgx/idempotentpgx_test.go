//go:build unix

package idempotentpgx_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/idempotent"
	"github.com/fencelock/fencelock/idempotent/idempotentpgx"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
)

// An event that a queue may deliver again is booked once.
func ExampleDoTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := idempotentpgx.DoTx(ctx, tx, "event:42", nil, func(ctx context.Context, tx pgx.Tx) (int64, error) {
			booked, err := tx.Exec(ctx, "UPDATE account SET cents = cents - 995 WHERE id = 1")
			return booked.RowsAffected(), err
		})
		return err
	})
	fmt.Println(err)
}

// start returns a server with the table, and one for effects.
func start(t *testing.T) *pgtest.Postgres {
	t.Helper()
	pg := pgtest.StartPostgres(t)
	pg.Exec(t, idempotentpgx.Schema(), idempotentpgx.Schema(), "CREATE TABLE effect (job int NOT NULL)")
	return pg
}

// book is a job with an effect in the database.
func book(job int) func(context.Context, pgx.Tx) (string, error) {
	return func(ctx context.Context, tx pgx.Tx) (string, error) {
		_, err := tx.Exec(ctx, "INSERT INTO effect VALUES ($1)", job)
		return fmt.Sprint("job ", job), err
	}
}

// errBack rolls a transaction back.
var errBack = errors.New("rolled back")

// TestDoTx: the effect is there once, with the note or not at all.
func TestDoTx(t *testing.T) {
	t.Parallel()
	pg := start(t)
	conn := pg.Connect(t)
	own := errors.New("own")
	do := func(key string, payload []byte, fn func(context.Context, pgx.Tx) (string, error), after error) (got string, err error) {
		errTx := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			got, err = idempotentpgx.DoTx(t.Context(), tx, key, payload, fn)
			return after
		})
		if !errors.Is(errTx, after) {
			t.Errorf("the transaction: %v, want %v", errTx, after)
		}
		return got, err
	}
	failing := func(ctx context.Context, tx pgx.Tx) (string, error) {
		_, _ = book(7)(ctx, tx)
		return "", own
	}
	for i, c := range []struct {
		key     string
		payload []byte
		fn      func(context.Context, pgx.Tx) (string, error)
		after   error // what the caller ends its transaction with
		want    string
		err     error
		effects string
	}{
		{"a", nil, book(1), errBack, "job 1", nil, "0"},
		{"a", nil, book(2), nil, "job 2", nil, "1"},
		{"a", nil, book(3), nil, "job 2", nil, "1"},
		{"a", []byte("p"), book(4), nil, "", idempotent.ErrMismatch, "1"},
		{"b", []byte("p"), failing, nil, "", own, "1"}, // the caller commits all the same
		{"b", []byte("q"), book(5), nil, "job 5", nil, "2"},
		{"b", []byte("q"), book(6), nil, "job 5", nil, "2"},
		{"b", []byte("p"), book(6), nil, "", idempotent.ErrMismatch, "2"},
		{"", nil, book(8), nil, "", driver.ErrInvalid, "2"},
	} {
		got, err := do(c.key, c.payload, c.fn, c.after)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%d: %q, %v; want %q, %v", i, got, err, c.want, c.err)
		}
		if n := pg.Query(t, "SELECT count(*) FROM effect"); n != c.effects {
			t.Errorf("%d: %s effects, want %s", i, n, c.effects)
		}
	}
}

// TestDeliveries: jobs are delivered many times to several workers, some of whose
// transactions are rolled back and some of whose connections die; no effect is there
// twice, and none is missing.
func TestDeliveries(t *testing.T) {
	t.Parallel()
	const jobs, workers, rounds = 10, 4, 3
	pg := start(t)
	pool, err := pgxpool.New(t.Context(), pg.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	deliver := func(job int, end func(tx pgx.Tx) error) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			got, err := idempotentpgx.DoTx(t.Context(), tx, fmt.Sprint("job:", job), nil, book(job))
			if want := fmt.Sprint("job ", job); err == nil && got != want {
				t.Errorf("%q, want %q", got, want)
			}
			if err == nil && end != nil {
				err = end(tx)
			}
			return err
		})
	}
	ends := []func(tx pgx.Tx) error{
		nil,
		func(pgx.Tx) error { return errBack },
		func(tx pgx.Tx) error { return tx.Conn().Close(t.Context()) },
	}
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range jobs * rounds {
				_ = deliver(i%jobs, ends[(i+w)%len(ends)]) // many fail, as they must
			}
			for i := range jobs { // the last deliveries succeed
				if err := deliver(i, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got := pg.Query(t, "SELECT count(*) || ' ' || count(DISTINCT job) FROM effect"); got != fmt.Sprint(jobs, " ", jobs) {
		t.Errorf("effects, and jobs with one: %s, want %d", got, jobs)
	}
}
