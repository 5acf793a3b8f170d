package pglock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/pglock"
)

// Take a lock for one transaction. It is released when the transaction ends.
func ExampleLockTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@db.example/app")
	if err != nil {
		log.Fatal(err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := pglock.LockTx(limited, tx, "invoices"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE counter SET n = n + 1")
		return err
	})
	if errors.Is(err, driver.ErrHeld) {
		fmt.Println("another session holds the lock:", err)
	}
}

// Skip jobs that other workers have locked.
func ExampleTryLockSQLTx() {
	next := func(ctx context.Context, tx *sql.Tx, ids []int64) (int64, error) {
		for _, id := range ids {
			err := pglock.TryLockSQLTx(ctx, tx, pglock.Key(id))
			if !errors.Is(err, driver.ErrHeld) {
				return id, err
			}
		}
		return 0, sql.ErrNoRows
	}
	_ = next
}

// The name for an integer is the call that locks it.
func ExampleKey() {
	fmt.Println(pglock.Key(42))
	// Output: pg_advisory_lock(42)
}
