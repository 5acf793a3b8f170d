//go:build unix

package fencepgx_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/fence/fencepgx"
	"github.com/fencelock/fencelock/fence/fencepostgres"
	"github.com/fencelock/fencelock/fence/internal/guardtest"
	"github.com/fencelock/fencelock/fence/internal/sqlfloor"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/memlock"
)

// A holder that was stopped for longer than its lease writes late, and bounces.
func ExampleCheck() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	engine := memlock.New(nil)
	locks := fencelock.New(engine, nil)

	pay := func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := fencepgx.Check(ctx, tx, "invoice:42"); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPDATE invoice SET value = 'paid' WHERE id = '42'")
			return err
		})
	}

	paused, err := locks.Acquire(ctx, "invoice:42")
	if err != nil {
		log.Fatal(err)
	}
	inFlight := context.WithoutCancel(paused.Context()) // it has checked its context, and is stopped
	engine.Lose("invoice:42")                           // its lease ends

	fmt.Println("next:", locks.Do(ctx, "invoice:42", pay))
	fmt.Println("late:", errors.Is(pay(inFlight), fence.ErrStale))
}

func TestCheck(t *testing.T) {
	server := pgtest.StartPostgres(t)
	server.Exec(t, fencepostgres.Schema(), "CREATE TABLE invoice (id text PRIMARY KEY, value text NOT NULL)")
	pool, err := pgxpool.New(t.Context(), server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)

	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		if err := guardtest.Run(t.Context(), invoice(t, pool, string(level), level)); err != nil {
			t.Errorf("%s: %v", level, err)
		}
	}

	checkFrozen(t, server, pool)
	checkSavepoint(t, pool)
	t.Setenv("DATABASE_URL", server.DSN())
	if got, want := guardtest.Prints(ExampleCheck), "next: <nil>\nlate: true\n"; got != want {
		t.Errorf("the example prints %q, want %q", got, want)
	}

	whole := sqlfloor.PostgresRaise
	defer func() { sqlfloor.PostgresRaise = whole }()
	for name, m := range map[string][2]string{
		"no comparison":    {"WHERE f.floor <= $2::bigint", "WHERE $2::bigint > 0"},
		"stores the token": {"VALUES ($1::text, $3::bigint)", "VALUES ($1::text, greatest($3::bigint, $2::bigint))"},
	} {
		sqlfloor.PostgresRaise = strings.Replace(whole, m[0], m[1], 1)
		if guardtest.Run(t.Context(), invoice(t, pool, name, pgx.ReadCommitted)) == nil {
			t.Errorf("a guard that %q passes", name)
		}
	}

	sqlfloor.PostgresRaise = whole
	server.Exec(t, "DROP TABLE fence_floor")
	err = invoice(t, pool, "no table", pgx.ReadCommitted).Write(fence.NewContext(t.Context(), fence.Fence{Token: 1, Floor: 1}), "")
	if failed, ok := errors.AsType[*pgconn.PgError](err); !ok || failed.Code != "42P01" {
		t.Errorf("without its table the guard returns %v", err)
	}
}

// under is a context with the fence of an exclusive holder.
// checkFrozen: the server ends the transaction of a process that was stopped in it, if it is
// told to, and the next holder writes.
func checkFrozen(t *testing.T, server *pgtest.Postgres, pool *pgxpool.Pool) {
	r := invoice(t, pool, "frozen", pgx.ReadCommitted)
	conn := server.Connect(t)
	if _, err := conn.Exec(t.Context(), "SET idle_in_transaction_session_timeout = 500"); err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := fencepgx.Check(guardtest.Under(t, 5), tx, r.Name); err != nil {
		t.Fatal(err)
	}
	if err := r.Write(guardtest.Under(t, 6), "next"); err != nil {
		t.Errorf("the next holder: %v", err)
	}
	if _, err := tx.Exec(t.Context(), "UPDATE invoice SET value = 'late' WHERE id = 'frozen'"); err == nil {
		t.Error("the transaction went on")
	}
	if got, err := r.Read(); got != "next" {
		t.Errorf("the invoice has %q, %v, want that of the next holder", got, err)
	}
}

// checkSavepoint: what the package says of savepoints. A check in one that is released
// counts, and one in a savepoint that is rolled back does not.
func checkSavepoint(t *testing.T, pool *pgxpool.Pool) {
	undone := errors.New("undone")
	for _, fails := range []error{nil, undone} {
		name := fmt.Sprint("savepoint ", fails)
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			err := pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error {
				return errors.Join(fencepgx.Check(guardtest.Under(t, 5), tx, name), fails)
			})
			if !errors.Is(err, fails) {
				return err
			}
			return fencepgx.Check(guardtest.Under(t, 4), tx, name)
		})
		if errors.Is(err, fence.ErrStale) != (fails == nil) {
			t.Errorf("a check after one in a savepoint that ended with %v: %v", fails, err)
		}
	}
}

// invoice is a guarded row.
func invoice(t *testing.T, pool *pgxpool.Pool, id string, level pgx.TxIsoLevel) guardtest.Resource {
	if _, err := pool.Exec(t.Context(), "INSERT INTO invoice (id, value) VALUES ($1, '')", id); err != nil {
		t.Fatal(err)
	}
	return guardtest.Resource{
		Name: id,
		Write: func(ctx context.Context, value string) error {
			return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
				if err := fencepgx.Check(ctx, tx, id); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, "UPDATE invoice SET value = $2 WHERE id = $1", id, value)
				return err
			})
		},
		Read: func() (value string, err error) {
			return value, pool.QueryRow(t.Context(), "SELECT value FROM invoice WHERE id = $1", id).Scan(&value)
		},
	}
}
