//go:build unix

package idempotentpgx_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
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

// TestDoTxWhoseContextEnds: a job that fails because its context has ended leaves nothing in
// the transaction of its caller, who may have another context and commit all the same.
func TestDoTxWhoseContextEnds(t *testing.T) {
	t.Parallel()
	pg := start(t)
	conn := pg.Connect(t)
	for key, end := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"fails":      func(ctx context.Context, _ pgx.Tx) error { return ctx.Err() },
		"succeeds":   func(context.Context, pgx.Tx) error { return nil },
		"panics":     func(context.Context, pgx.Tx) error { panic("oh") },
		"rolls back": func(ctx context.Context, tx pgx.Tx) error { return errors.Join(ctx.Err(), tx.Rollback(ctx)) },
	} {
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			defer func() { _ = recover() }() // as a server does; the caller commits
			_, err := idempotentpgx.DoTx(ctx, tx, key, nil, func(ctx context.Context, tx pgx.Tx) (string, error) {
				got, err := book(1)(ctx, tx)
				cancel()
				return got, errors.Join(err, end(ctx, tx))
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", key, err)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: the transaction: %v", key, err)
		}
		if n := pg.Query(t, "SELECT (SELECT count(*) FROM effect) || ' ' || (SELECT count(*) FROM fencelock_once)"); n != "0 0" {
			t.Errorf("%s: effects, and notes: %s", key, n)
		}
	}
}

// TestDoTxThatCannotRollBack: nobody can commit what is left of a job whose savepoint could
// not be rolled back.
func TestDoTxThatCannotRollBack(t *testing.T) {
	t.Parallel()
	pg := start(t)
	own := errors.New("own")
	for _, itself := range []bool{false, true} {
		var rows pgx.Rows
		err := pgx.BeginFunc(t.Context(), pg.Connect(t), func(tx pgx.Tx) error {
			_, err := idempotentpgx.DoTx(t.Context(), tx, "a", nil, func(ctx context.Context, tx pgx.Tx) (string, error) {
				_, err := book(1)(ctx, tx)
				if err == nil {
					rows, err = tx.Query(ctx, "SELECT generate_series(1, 10)") // and is busy until they are read
				}
				if itself {
					err = errors.Join(err, tx.Rollback(ctx))
				}
				return "", errors.Join(err, own)
			})
			if !errors.Is(err, own) {
				t.Errorf("the job: %v", err)
			}
			rows.Close()
			return nil
		})
		if n := pg.Query(t, "SELECT count(*) FROM effect"); err == nil || n != "0" {
			t.Errorf("the job rolls back itself: %v; %s effects, %v", itself, n, err)
		}
	}
}

// TestDoTxEndedByItsJob: a job cannot commit before its result is stored, nor ask for itself.
func TestDoTxEndedByItsJob(t *testing.T) {
	t.Parallel()
	pg := start(t)
	conn := pg.Connect(t)
	for name, c := range map[string]struct {
		misuse func(ctx context.Context, tx pgx.Tx) error
		want   error // nil is any
	}{
		"commit":   {func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }, nil},
		"rollback": {func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) }, pgx.ErrTxClosed},
		"itself": {func(ctx context.Context, tx pgx.Tx) error {
			_, err := idempotentpgx.DoTx(ctx, tx, "itself", nil, book(2))
			return err
		}, idempotent.ErrInProgress},
	} {
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			_, err := idempotentpgx.DoTx(t.Context(), tx, name, nil, func(ctx context.Context, tx pgx.Tx) (string, error) {
				got, err := book(1)(ctx, tx)
				return got, errors.Join(err, c.misuse(ctx, tx))
			})
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
			return nil // commits
		})
		if err != nil {
			t.Errorf("%s: the transaction: %v", name, err)
		}
		if n := pg.Query(t, "SELECT count(*) FROM effect"); n != "0" {
			t.Errorf("%s: %s effects", name, n)
		}
	}
}

// remover removes all notes before each query for one.
type remover struct {
	t  *testing.T
	pg *pgtest.Postgres
}

func (r remover) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(q.SQL, "SELECT payload") {
		r.pg.Exec(r.t, "DELETE FROM fencelock_once")
	}
	return ctx
}

func (remover) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestDoTxWhoseNoteIsRemoved: a note that is removed as somebody asks for it leaves a new key.
func TestDoTxWhoseNoteIsRemoved(t *testing.T) {
	t.Parallel()
	pg := start(t)
	cfg, err := pgx.ParseConfig(pg.DSN())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Tracer = remover{t, pg}
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for job := 1; job <= 2; job++ {
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			got, err := idempotentpgx.DoTx(t.Context(), tx, "a", nil, book(job))
			if want := fmt.Sprint("job ", job); err == nil && got != want {
				t.Errorf("%q, want %q", got, want)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	if n := pg.Query(t, "SELECT (SELECT count(*) FROM effect) || ' ' || (SELECT count(*) FROM fencelock_once)"); n != "2 1" {
		t.Errorf("effects, and notes: %s", n)
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
