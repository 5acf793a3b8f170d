// Command postgres pays an invoice under a lock on PostgreSQL, with pgx. A process that
// has lost its lock cannot write: its transaction checks the fencing token.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence/fencepgx"
	"github.com/fencelock/fencelock/fence/fencepostgres"
	"github.com/fencelock/fencelock/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Exec(ctx, fencepostgres.Schema()); err != nil { // a migration, usually
		log.Fatal(err)
	}
	engine := pglock.New(pool, nil)
	locks := fencelock.New(engine, nil).With(fencelock.Options{Wait: 5 * time.Second})

	err = locks.Do(ctx, "invoice:42", func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := fencepgx.Check(ctx, tx, "invoice:42"); err != nil {
				return err // fence.ErrStale: a later holder of the lock has written
			}
			_, err := tx.Exec(ctx, "UPDATE invoice SET paid = true WHERE id = 42")
			return err
		})
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("invoice 42 is paid")
	if err := engine.Close(); err != nil {
		log.Fatal(err)
	}
	pool.Close()
}
