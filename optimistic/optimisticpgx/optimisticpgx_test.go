//go:build unix

package optimisticpgx_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testkit/pgtest"
	"github.com/fencelock/fencelock/optimistic"
	"github.com/fencelock/fencelock/optimistic/optimisticpgx"
)

// A transfer that is made again for as long as others come in between.
func ExampleTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	err = optimisticpgx.Tx(ctx, pool, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE account SET cents = cents - 100 WHERE id = 1"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE account SET cents = cents + 100 WHERE id = 2")
		return err
	})
	fmt.Println(err)
}

// TestTransactionsAreMadeAgain: one that the server refuses because somebody has committed in
// between, or because of a row's version, is made again, and what it did is there once.
func TestTransactionsAreMadeAgain(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartPostgres(t)
	pg.Exec(t, "CREATE TABLE seat (id int PRIMARY KEY, taken int NOT NULL, version int NOT NULL)", "INSERT INTO seat VALUES (1, 0, 1)")
	taken := 0
	rival := func() { // another client, which commits
		pg.Exec(t, "UPDATE seat SET taken = taken + 1, version = version + 1")
		taken++
	}
	once := func(kind string, run func(begin func()) error) {
		t.Helper()
		calls := 0
		err := run(func() {
			if calls++; calls == 1 {
				rival()
			}
		})
		taken++
		if err != nil || calls != 2 {
			t.Errorf("%s: %v after %d calls, want 2", kind, err, calls)
		}
		if got := pg.Query(t, "SELECT taken FROM seat"); got != fmt.Sprint(taken) {
			t.Errorf("%s: %s seats are taken, want %d", kind, got, taken)
		}
	}
	const take, takeAt = "UPDATE seat SET taken = taken + 1", "UPDATE seat SET taken = taken + 1, version = version + 1 WHERE version = $1"
	conn := pg.Connect(t)
	once("pgx, serializable", func(between func()) error {
		return optimisticpgx.Tx(t.Context(), conn, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(ctx context.Context, tx pgx.Tx) error {
			var n int
			if err := tx.QueryRow(ctx, "SELECT taken FROM seat").Scan(&n); err != nil {
				return err
			}
			between()
			_, err := tx.Exec(ctx, take)
			return err
		})
	})
	once("pgx, a version", func(between func()) error {
		return optimisticpgx.Tx(t.Context(), conn, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
			var version int
			if err := tx.QueryRow(ctx, "SELECT version FROM seat").Scan(&version); err != nil {
				return err
			}
			between()
			return optimisticpgx.Changed(tx.Exec(ctx, takeAt, version))
		})
	})
	db, err := sql.Open("pgx", pg.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	once("database/sql, serializable", func(between func()) error {
		return optimistic.Tx(t.Context(), db, &sql.TxOptions{Isolation: sql.LevelSerializable}, func(ctx context.Context, tx *sql.Tx) error {
			var n int
			if err := tx.QueryRowContext(ctx, "SELECT taken FROM seat").Scan(&n); err != nil {
				return err
			}
			between()
			_, err := tx.ExecContext(ctx, take)
			return err
		})
	})
	once("database/sql, a version", func(between func()) error {
		return optimistic.Retry(t.Context(), func(ctx context.Context) error {
			var version int
			if err := db.QueryRowContext(ctx, "SELECT version FROM seat").Scan(&version); err != nil {
				return err
			}
			between()
			return optimistic.Changed(db.ExecContext(ctx, takeAt, version))
		})
	})
	own := errors.New("own")
	err = optimistic.Tx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, take); err != nil {
			return err
		}
		return own
	})
	if got := pg.Query(t, "SELECT taken FROM seat"); !errors.Is(err, own) || got != fmt.Sprint(taken) {
		t.Errorf("a transaction whose function fails: %v; %s seats are taken, want %d", err, got, taken)
	}
}

func TestChanged(t *testing.T) {
	own := errors.New("own")
	for _, c := range []struct {
		tag       string
		err, want error
	}{{"UPDATE 1", nil, nil}, {"UPDATE 0", nil, driver.ErrConflict}, {"", own, own}} {
		if err := optimisticpgx.Changed(pgconn.NewCommandTag(c.tag), c.err); err != c.want {
			t.Errorf("Changed(%q, %v) = %v, want %v", c.tag, c.err, err, c.want)
		}
	}
}
