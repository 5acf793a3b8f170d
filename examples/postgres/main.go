// Command postgres pays an invoice under a lock on PostgreSQL, by pgx. The table
// refuses whoever comes late: its column fence keeps the greatest token.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
)

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	engine := pglock.New(pool, nil)
	defer engine.Close()
	locks := fencelock.New(engine, nil) // one for the whole program

	err = locks.Do(ctx, "invoice:42", func(ctx context.Context) error {
		token, _ := fencelock.TokenFrom(ctx)
		tag, err := pool.Exec(ctx, "UPDATE invoice SET paid = true, fence = $1 WHERE id = 42 AND fence <= $1", token)
		fmt.Println("invoices paid:", tag.RowsAffected())
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}
